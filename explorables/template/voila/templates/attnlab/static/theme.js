// The buttons of every page: light or dark, and lecture size. The head's inline script has chosen both already.
addEventListener("DOMContentLoaded", () => {
  const root = document.documentElement;

  const remembered = (key) => {
    try {
      return localStorage.getItem(key);
    } catch {
      return null; // storage is blocked in some frames
    }
  };

  /** A button between two values that is pressed at the second; this and other tabs remember the choice. */
  function choice(name, key, [plain, pressed], present, apply) {
    const button = document.querySelector(`[data-attnlab-${name}-toggle]`);
    const show = (value) => {
      apply(value);
      button?.setAttribute("aria-pressed", String(value === pressed));
    };
    show(present());
    button?.addEventListener("click", () => {
      const value = present() === pressed ? plain : pressed;
      show(value);
      try {
        localStorage.setItem(key, value);
      } catch {
        /* then the choice holds for this page only */
      }
    });
    addEventListener("storage", (event) => {
      if (event.key === key && event.newValue) show(event.newValue);
    });
    return show;
  }

  const showTheme = choice("theme", "attnlab-theme", ["light", "dark"], () => root.dataset.attnlabTheme, (theme) => {
    root.dataset.attnlabTheme = theme;
    document.body.dataset.jpThemeLight = String(theme !== "dark");
  });
  choice("size", "attnlab-size", ["page", "lecture"], () => root.dataset.attnlabSize, (size) => {
    root.dataset.attnlabSize = size;
  });
  // Follow the system as long as the reader has said nothing.
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => {
    if (!remembered("attnlab-theme")) showTheme(event.matches ? "dark" : "light");
  });
  // On a narrow screen the navigation scrolls sideways; begin where the reader is.
  const list = document.querySelector(".attnlab-nav ul");
  const current = list?.querySelector("[aria-current]");
  if (current) list.scrollLeft = current.offsetLeft - list.offsetLeft - list.clientWidth / 3;
});
