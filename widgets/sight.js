// What can be seen in the window, and what is scrolled away.

/** @param {() => void} came is called when something that was away comes into sight */
export function createSight(signal, came) {
  const away = new Set();
  let watched = new Set();
  const observer = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting) away.delete(target);
      else if (watched.has(target)) away.add(target);
    }
    if (entries.some(({ isIntersecting }) => isIntersecting)) came();
  });
  signal.addEventListener("abort", () => observer.disconnect());
  return {
    /** Watches these elements and no others. */
    watch(elements) {
      const before = watched;
      watched = new Set(elements);
      for (const element of before)
        if (!watched.has(element)) {
          observer.unobserve(element);
          away.delete(element);
        }
      for (const element of watched) if (!before.has(element)) observer.observe(element);
    },
    /** An element of which nothing is known yet can be seen. */
    isSeen: (element) => !away.has(element),
  };
}
