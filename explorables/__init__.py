"""The notebooks, the page they are served on, and the `attnlab` command."""
