// The chosen colors, before anything is drawn. "auto" follows the system.
"use strict";
const kept = localStorage.getItem("theme");
if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
