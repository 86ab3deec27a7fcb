// Charts of one job, drawn from the columns that the stream of its page sends.
"use strict";
(() => {
  const stream = document.querySelector("#live");
  const boxes = [...document.querySelectorAll("[data-chart]")];
  const drawn = new Map();
  const POWERS = Array.from({ length: 50 }, (_, power) => 2 ** power);
  let columns = null;

  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const short = (value, steps, base) => {
    let step = 0;
    let rest = value;
    while (Math.abs(rest) >= base && step < steps.length - 1) { rest /= base; step += 1; }
    return `${+rest.toFixed(rest < 10 ? 2 : 1)}${steps[step]}`;
  };
  const count = (value) => short(value, ["", " k", " M", " G", " T"], 1000);
  const bytes = (value) => short(value, [" B", " KiB", " MiB", " GiB", " TiB"], 1024);
  const moment = (seconds) => {
    const text = new Date(seconds * 1000).toISOString();
    const [first, last] = [columns.at_s[0], columns.at_s[columns.at_s.length - 1]];
    return last - first > 86400 ? text.slice(5, 16).replace("T", " ") : text.slice(11, last - first > 600 ? 16 : 19);
  };
  const duration = (ms) => (ms < 1000 ? `${+ms.toFixed(0)} ms` : ms < 120000 ? `${+(ms / 1000).toFixed(1)} s` : `${+(ms / 60000).toFixed(1)} min`);
  const share = (value) => `${+(value * 100).toFixed(0)} %`;
  const formats = { count, bytes, duration, share };

  const options = (box) => ({
    width: box.clientWidth,
    height: box.clientHeight,
    tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
    legend: { show: false },
    padding: [null, 30, null, null], // Half of the last label, which has its middle at the edge.
    cursor: { drag: { x: false, y: false } },
    scales: { y: { range: (_, low, high) => [0, Math.max(high || 0, 1) * 1.08] } },
    axes: [
      {
        stroke: color("--quiet"),
        grid: { stroke: color("--line"), width: 1 },
        ticks: { show: false },
        space: 80,
        size: 32,
        values: (_, values) => values.map(moment),
      },
      {
        stroke: color("--quiet"),
        grid: { stroke: color("--line"), width: 1 },
        ticks: { show: false },
        size: 74,
        values: (_, values) => values.map(formats[box.dataset.format]),
        ...(box.dataset.format === "bytes" ? { incrs: POWERS } : {}),
      },
    ],
    series: [
      {},
      {
        stroke: color(box.dataset.color),
        fill: color(`${box.dataset.color}-fill`),
        width: 1.6,
        points: { show: false },
        spanGaps: false,
      },
    ],
  });

  const draw = (box) => {
    const field = box.dataset.chart;
    const isEmpty = !columns || columns[field].every((value) => value === null);
    const section = box.closest("section");
    section.querySelector(".nothing").hidden = !isEmpty;
    box.hidden = isEmpty;
    // What a job does not tell has no place beside what it tells.
    section.hidden = isEmpty && Boolean(columns) && columns.at_s.length > 0;
    if (isEmpty) return;
    const data = [columns.at_s, columns[field]];
    if (drawn.has(box)) drawn.get(box).setData(data);
    else drawn.set(box, new uPlot(options(box), data, box));
    box.dataset.drawn = String(columns.at_s.length);
  };
  const again = () => {
    drawn.forEach((chart) => chart.destroy());
    drawn.clear();
    boxes.forEach(draw);
  };

  if (!stream) return;
  stream.addEventListener("samples", (event) => {
    columns = JSON.parse(event.detail.data);
    boxes.forEach(draw);
  });
  document.addEventListener("theme", again);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth !== width) again();
    width = innerWidth;
  });
})();
