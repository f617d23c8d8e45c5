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

  /**
   * A button between two values of `property` of the page, pressed at the second. This and other tabs remember
   * the choice; `also` does what else belongs to it.
   */
  function choice(name, property, [plain, pressed], also = () => {}) {
    const key = `attnlab-${name}`;
    const button = document.querySelector(`[data-attnlab-${name}-toggle]`);
    const show = (value) => {
      root.dataset[property] = value;
      button?.setAttribute("aria-pressed", String(value === pressed));
      also(value);
    };
    show(root.dataset[property]);
    button?.addEventListener("click", () => {
      const value = root.dataset[property] === pressed ? plain : pressed;
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

  const showTheme = choice("theme", "attnlabTheme", ["light", "dark"], (theme) => {
    document.body.dataset.jpThemeLight = String(theme !== "dark");
  });
  choice("size", "attnlabSize", ["page", "lecture"]);
  // Follow the system as long as the reader has said nothing.
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => {
    if (!remembered("attnlab-theme")) showTheme(event.matches ? "dark" : "light");
  });
  // On a narrow screen the navigation scrolls sideways; begin where the reader is.
  const list = document.querySelector(".attnlab-nav ul");
  const current = list?.querySelector("[aria-current]");
  if (current) list.scrollLeft = current.offsetLeft - list.offsetLeft - list.clientWidth / 3;
});
