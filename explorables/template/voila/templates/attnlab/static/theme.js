// The light/dark button of every page. The head's inline script has chosen the theme already.
addEventListener("DOMContentLoaded", () => {
  const root = document.documentElement;
  const button = document.querySelector("[data-attnlab-theme-toggle]");

  const show = (theme) => {
    root.dataset.attnlabTheme = theme;
    document.body.dataset.jpThemeLight = String(theme !== "dark");
    button?.setAttribute("aria-pressed", String(theme === "dark"));
  };
  const remembered = () => {
    try {
      return localStorage.getItem("attnlab-theme");
    } catch {
      return null; // storage is blocked in some frames
    }
  };

  show(root.dataset.attnlabTheme);
  button?.addEventListener("click", () => {
    const theme = root.dataset.attnlabTheme === "dark" ? "light" : "dark";
    show(theme);
    try {
      localStorage.setItem("attnlab-theme", theme);
    } catch {
      /* then the choice holds for this page only */
    }
  });
  // Follow the system, and the reader's other tabs, as long as they say something.
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => {
    if (!remembered()) show(event.matches ? "dark" : "light");
  });
  addEventListener("storage", (event) => {
    if (event.key === "attnlab-theme" && event.newValue) show(event.newValue);
  });
  // On a narrow screen the navigation scrolls sideways; begin where the reader is.
  const list = document.querySelector(".attnlab-nav ul");
  const current = list?.querySelector("[aria-current]");
  if (current) list.scrollLeft = current.offsetLeft - list.offsetLeft - list.clientWidth / 3;
});
