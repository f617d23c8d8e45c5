// The life of a notebook's page: prose first, then outputs, then widgets, and a notice when Python is gone.
// Classic script, because the page's inline scripts call it while the page is still arriving.
const attnlab = (() => {
  const HINT_AFTER = 4000; // ms of waiting before the page explains itself
  const DRAWN_WITHIN = 30000; // ms that the widgets may take to appear once everything has arrived
  const GRACE = 2000; // ms; short hiccups of the connection are nobody's business
  const GONE = new Set(["dead", "restarting", "autorestarting", "terminating"]);

  const find = (name) => document.querySelector(`[data-attnlab-${name}]`);
  const slots = () => [...document.querySelectorAll("[data-attnlab-slot]")];
  let complete = false;
  let failed = false;

  function stage(name) {
    const progress = find("progress");
    const text = progress?.dataset[name];
    if (text && find("stage").textContent !== text) find("stage").textContent = text;
  }

  // The progress stands where the next output will appear.
  function moveProgress() {
    const progress = find("progress");
    const next = slots().find((slot) => slot.dataset.state !== "done");
    if (next && !failed) {
      if (progress.nextElementSibling !== next) next.before(progress);
    } else if (progress && progress.dataset.state !== "done") {
      progress.dataset.state = "done";
      find("hint").hidden = true;
      if (failed) find("stage").textContent = "";
      else stage("ready");
    }
  }

  function done(slot) {
    slot.dataset.state = "done";
    moveProgress();
  }

  // A widget is there when its own element is; until then Voilà shows a placeholder text.
  const drawn = (slot) =>
    [...slot.querySelectorAll(".attnlab-output")].every((output) =>
      output.querySelector(".jp-OutputArea-output:not(.lm-Panel) > *, .jp-OutputArea-output.lm-Panel > .lm-Widget"),
    );

  function watchSlot(slot) {
    const observer = new MutationObserver(() => {
      if (!drawn(slot)) return;
      observer.disconnect();
      done(slot);
    });
    observer.observe(slot, { childList: true, subtree: true });
  }

  function notice(kind) {
    const box = find("notice");
    const message = find("message");
    if (!kind) {
      box.hidden = true;
      message.replaceChildren();
    } else if (box.hidden) {
      box.hidden = false; // first shown, then filled: only then is it read out
      message.replaceChildren(box.querySelector(`[data-attnlab-when="${kind}"]`).content.cloneNode(true));
    }
  }

  function fail() {
    failed = true;
    moveProgress();
    notice("failed");
  }

  async function watchKernel() {
    while (!window.jupyterapp) await new Promise((resolve) => setTimeout(resolve, 100));
    const { kernel } = await window.jupyterapp.widgetManagerPromise.promise;
    let timer = null;
    let dead = false;
    kernel.statusChanged.connect((_, status) => {
      if (!GONE.has(status)) return;
      dead = true;
      notice("lost");
    });
    kernel.connectionStatusChanged.connect((_, status) => {
      clearTimeout(timer);
      if (status !== "connected") timer = setTimeout(() => notice("lost"), GRACE);
      else if (!dead && !failed) notice(null);
    });
  }

  addEventListener("load", () => {
    if (!complete) fail(); // the server went away in the middle of the page
    watchKernel();
    if (failed) return;
    setTimeout(() => {
      if (slots().some((slot) => slot.dataset.state !== "done")) fail();
    }, DRAWN_WITHIN);
  });
  // A page from the browser's memory has lost its kernel when it was left.
  addEventListener("pageshow", (event) => {
    if (event.persisted) location.reload();
  });

  return {
    begin() {
      moveProgress();
      find("reload").addEventListener("click", () => location.reload());
      setTimeout(() => {
        if (slots().some((slot) => slot.dataset.state !== "done") && !failed) find("hint").hidden = false;
      }, HINT_AFTER);
    },
    running() {
      stage("running");
    },
    place(index) {
      const outputs = document.querySelector(`template[data-attnlab-outputs="${index}"]`);
      const slot = document.querySelector(`[data-attnlab-slot="${index}"]`);
      if (outputs.content.querySelector("[data-attnlab-failed]")) failed = true;
      for (const mark of outputs.content.querySelectorAll("[data-attnlab-failed]")) mark.remove();
      slot.append(outputs.content);
      outputs.remove();
      if (slot.querySelector(".attnlab-output")) watchSlot(slot);
      else done(slot);
      if (failed) fail();
    },
    end() {
      complete = true;
      if (!failed) stage("drawing");
      moveProgress();
    },
  };
})();
