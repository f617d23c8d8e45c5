"""Views and explorables for notebooks."""
