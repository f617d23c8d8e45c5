"""What is kept beside a widget is seen where the widget isn't drawn, and nowhere else."""

from playwright.sync_api import Browser, expect

from attnlab.widgets.still import beside_widget, still_html
from helpers.explorable_page import ExplorablePage


def test_it_shows_unless_its_own_widget_is_drawn(browser: Browser) -> None:
    page = browser.new_page()
    still = beside_widget(still_html("Explorable()", []), "a1")
    drawn = "document.body.insertAdjacentHTML('beforeend', '<div class=attnlab-drawn-{}></div>')"
    page.set_content(f"<body>{still}</body>")
    text = page.get_by_text("shows this when its notebook runs")
    expect(text).to_be_visible()  # after a moment, in which a widget would have come
    page.evaluate(drawn.format("b2"))
    expect(text).to_be_visible()
    page.evaluate(drawn.format("a1"))
    expect(text).to_be_hidden()
    page.close()


def test_it_is_hidden_beside_a_live_widget(explorable: ExplorablePage) -> None:
    still = explorable.page.locator(".attnlab-still")
    expect(still).to_have_count({"voila": 0, "lab": 1}[explorable.host])
    for one in still.all():
        expect(one).to_be_hidden()
