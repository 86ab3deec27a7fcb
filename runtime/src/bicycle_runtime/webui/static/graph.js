// The drawing of a job's graph: laid out once for each shape, then only texts and classes change.
"use strict";
(() => {
  const NAMES = "http://www.w3.org/2000/svg";
  const HEAD = 24;
  const ROW = 38;
  const PAD = 12;
  const SMALLEST = 0.7; // So far a wide drawing shrinks to fit.
  const box = document.querySelector("#drawing");
  const stream = document.querySelector("#live");
  let digest = null;
  if (!box || !stream) return;

  const element = (name, attributes, parent) => {
    const made = document.createElementNS(NAMES, name);
    Object.entries(attributes).forEach(([key, value]) => made.setAttribute(key, value));
    if (parent) parent.append(made);
    return made;
  };
  const canvas = document.createElement("canvas").getContext("2d");
  const widthOf = (text, size) => {
    canvas.font = `${size}px ${getComputedStyle(document.body).fontFamily}`;
    return canvas.measureText(text).width;
  };
  const cut = (text) => (text.length > 34 ? `${text.slice(0, 33)}…` : text);

  const layOut = (graph) => {
    const plan = new dagre.graphlib.Graph({ multigraph: true });
    plan.setGraph({ rankdir: innerWidth < 700 ? "TB" : "LR", nodesep: 30, ranksep: 70, marginx: 14, marginy: 14 });
    plan.setDefaultEdgeLabel(() => ({}));
    graph.nodes.forEach((node) => {
      const widths = node.operators.map((each) =>
        Math.max(widthOf(cut(each.name), 13), widthOf(each.text, 11.5) + 30, 130));
      plan.setNode(String(node.id), {
        width: Math.max(...widths) + 2 * PAD,
        height: HEAD + ROW * node.operators.length + 6,
      });
    });
    graph.edges.forEach((edge, index) => {
      // Room for the widest pace: labels change, the layout does not.
      plan.setEdge(String(edge.from), String(edge.to), {
        width: widthOf(`${edge.way} 88.88 M/s`, 11.5) + 10,
        height: 16,
        labelpos: "c",
      }, String(index));
    });
    dagre.layout(plan);
    return plan;
  };

  const drawNode = (svg, node, place) => {
    const left = place.x - place.width / 2;
    const top = place.y - place.height / 2;
    const group = element("g", { transform: `translate(${left},${top})` }, svg);
    element("rect", { width: place.width, height: place.height, rx: 6 }, group);
    element("text", { x: PAD, y: 17, class: "quiet" }, group).textContent =
      node.caption || `${node.operators.length > 1 ? "chain, " : ""}parallelism ${node.parallelism}`;
    node.operators.forEach((each, index) => {
      const link = element("a", { href: each.href || `#op-${each.id}`, "data-operator": each.id }, group);
      const y = HEAD + index * ROW;
      element("rect", { x: 3, y, width: place.width - 6, height: ROW, rx: 4, class: "mark" }, link);
      element("text", { x: PAD, y: y + 15 }, link).textContent = cut(each.name);
      element("text", { x: PAD, y: y + 31, class: "quiet", "data-numbers": "" }, link);
    });
  };

  const drawEdge = (svg, edge, place, index) => {
    const points = place.points.map((point) => `${point.x.toFixed(1)},${point.y.toFixed(1)}`);
    const kind = edge.exchange === "feedback" ? "feedback" : "";
    element("path", { d: `M${points.join("L")}`, class: kind, "marker-end": "url(#arrow)" }, svg);
    element("text", {
      x: place.x, y: place.y - 4, class: "quiet", "text-anchor": "middle", "data-edge": index,
    }, svg);
  };

  const draw = (graph) => {
    const plan = layOut(graph);
    const { width, height } = plan.graph();
    const svg = element("svg", {
      width, height, viewBox: `0 0 ${width} ${height}`, role: "group",
      "aria-label": box.dataset.label,
    });
    svg.style.minWidth = `${width * SMALLEST}px`; // What is wider than that is scrolled.
    const marker = element("marker", {
      id: "arrow", viewBox: "0 0 8 8", refX: 8, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto",
    }, element("defs", {}, svg));
    element("path", { d: "M0,0L8,4L0,8z" }, marker);
    graph.edges.forEach((edge, index) => {
      drawEdge(svg, edge, plan.edge(String(edge.from), String(edge.to), String(index)), index);
    });
    graph.nodes.forEach((node) => drawNode(svg, node, plan.node(String(node.id))));
    box.replaceChildren(svg);
  };

  const update = (graph) => {
    graph.nodes.flatMap((node) => node.operators).forEach((each) => {
      const link = box.querySelector(`[data-operator="${CSS.escape(each.id)}"]`);
      const numbers = link.querySelector("[data-numbers]");
      if (numbers.textContent !== each.text) numbers.textContent = each.text;
      link.classList.toggle("failing", each.is_failing);
      [1, 2, 3].forEach((step) => link.classList.toggle(`busy-${step}`, each.busy === step));
    });
    graph.edges.forEach((edge, index) => {
      const text = box.querySelector(`[data-edge="${index}"]`);
      if (text.textContent !== edge.label) text.textContent = edge.label;
    });
  };

  const choose = () => {
    const id = decodeURIComponent(location.hash.replace(/^#op-/, ""));
    box.querySelectorAll("a").forEach((link) => {
      link.classList.toggle("chosen", link.dataset.operator === id);
    });
    const details = document.getElementById(`op-${id}`);
    if (details) details.open = true;
  };

  stream.addEventListener("graph", (event) => {
    const graph = JSON.parse(event.detail.data);
    if (graph.digest !== digest) {
      draw(graph);
      digest = graph.digest;
    }
    update(graph);
    choose();
    box.dataset.drawn = String(graph.nodes.length);
  });
  addEventListener("hashchange", choose);
})();
