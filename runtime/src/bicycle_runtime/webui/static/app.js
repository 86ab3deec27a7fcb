// What all pages share: keys, dialogs, colors, and how old the page is.
"use strict";
(() => {
  const SILENT_MS = 12000;
  const KEEP_LINES = 2000;
  const one = (selector, within = document) => within.querySelector(selector);
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];

  // Colors: auto, light, dark, in turn.
  const themeButton = one("#theme");
  const showTheme = () => {
    themeButton.textContent = document.documentElement.dataset.theme || "auto";
  };
  themeButton.hidden = false;
  showTheme();
  themeButton.addEventListener("click", () => {
    const root = document.documentElement;
    const next = { undefined: "light", light: "dark", dark: undefined }[root.dataset.theme];
    if (next) root.dataset.theme = next;
    else delete root.dataset.theme;
    localStorage.setItem("theme", next || "auto");
    showTheme();
    document.dispatchEvent(new Event("theme"));
  });

  // Dialogs: a link with data-dialog leads to a page that asks; with scripts it asks here.
  document.addEventListener("click", (event) => {
    const opener = event.target.closest("[data-dialog]");
    const dialog = opener && document.getElementById(opener.dataset.dialog);
    if (dialog) {
      event.preventDefault();
      dialog.showModal();
    }
    if (event.target.closest("[data-close]") && event.target.closest("dialog")) {
      event.preventDefault();
      event.target.closest("dialog").close();
    }
    if (event.target.id === "pick-all") {
      all("input[name=job]").forEach((box) => { box.checked = event.target.checked; });
    }
  });
  all("form[data-send] select").forEach((select) => {
    select.addEventListener("change", () => select.form.requestSubmit());
  });

  // Keys
  let isAfterG = false;
  const move = (step) => {
    const rows = all("tr[data-row] a.row, details.operator > summary");
    const now = rows.indexOf(document.activeElement);
    const next = now < 0 ? 0 : Math.min(Math.max(now + step, 0), rows.length - 1);
    if (rows[next]) rows[next].focus();
  };
  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.matches("input:not([type=checkbox]), select, textarea");
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping || one("dialog[open]")) return;
    const tab = isAfterG && one(`[data-key="${CSS.escape(event.key)}"]`);
    isAfterG = event.key === "g" && !isAfterG;
    if (tab) tab.click();
    else if (event.key === "/" && one("#filter")) one("#filter").focus();
    else if (event.key === "/") location.assign("/jobs#filter");
    else if (event.key === "j") move(1);
    else if (event.key === "k") move(-1);
    else if (event.key === "?") one("#keys").showModal();
    else return;
    event.preventDefault();
  });
  if (location.hash === "#filter" && one("#filter")) one("#filter").focus();

  // How old the page is. A stream that is silent says so.
  const asOf = one("#as-of");
  const stream = one("#live");
  let heardMs = Date.now();
  if (stream) {
    stream.addEventListener("beat", (event) => {
      const told = JSON.parse(event.detail.data);
      heardMs = Date.now();
      asOf.textContent = "as of " + new Date(told.as_of_ms).toISOString().slice(11, 19) + " UTC";
      asOf.classList.remove("silent");
      document.documentElement.dataset.live = "yes";
    });
    setInterval(() => {
      const silentMs = Date.now() - heardMs;
      if (silentMs < SILENT_MS || document.hidden) return;
      asOf.textContent = `no response for ${Math.round(silentMs / 1000)} s`;
      asOf.classList.add("silent");
    }, 1000);
  }

  // A log that follows: it stays at its end while the reader is there, and does not grow forever.
  const log = one("#log");
  if (log) {
    log.scrollTop = log.scrollHeight;
    const isAtEnd = () => log.scrollHeight - log.scrollTop - log.clientHeight < 40;
    let follows = true;
    log.addEventListener("scroll", () => { follows = isAtEnd(); });
    new MutationObserver(() => {
      while (log.childElementCount > KEEP_LINES) log.firstElementChild.remove();
      if (follows) log.scrollTop = log.scrollHeight;
    }).observe(log, { childList: true });
  }
})();
