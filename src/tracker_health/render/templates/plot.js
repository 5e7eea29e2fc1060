"use strict";
// Charts: values under the pointer and by arrow keys, zoom, logarithmic or linear axis. What was drawn for paper is
// drawn again at the width that there is, so that text keeps its size.
const FRAMED = self !== top;
const DATA = JSON.parse(document.getElementById("data").textContent);

const format = (value) => {
  if (value === null || value === undefined) return "no value";
  if (Number.isInteger(value) && Math.abs(value) < 1e9) return String(value);
  const size = Math.abs(value);
  const short = Number(value.toPrecision(4));
  return size !== 0 && (size < 1e-4 || size >= 1e9) ? short.toExponential() : String(short);
};
// All digits of a round value, so that no two ticks look alike.
const tickText = (value) => {
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e7) return value.toLocaleString("en");
  const short = Number(value.toPrecision(size < 1e7 ? 10 : 7));
  return size < 1e-4 || size >= 1e7 ? short.toExponential() : String(short);
};

function element(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function roundValues(low, high, amount) {
  const raw = (high - low) / amount || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const unit = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((one) => one >= raw * 0.999);
  const found = [];
  for (let at = Math.ceil(low / unit); at <= Math.floor(high / unit) && found.length < 20; at++)
    found.push(Number((at * unit).toPrecision(10)));
  return found;
}

function valueTicks(low, high, log) {
  if (!log) return roundValues(low, high, 5);
  const powers = [];
  for (let power = Math.ceil(low); power <= Math.floor(high); power++) powers.push(10 ** power);
  if (powers.length >= 3) return powers.filter((_, at) => at % (1 + Math.floor(powers.length / 8)) === 0);
  const some = [];
  for (let power = Math.floor(low); power <= Math.ceil(high); power++)
    for (const factor of [1, 2, 5]) some.push(Number((factor * 10 ** power).toPrecision(3)));
  const inside = some.filter((one) => Math.log10(one) >= low && Math.log10(one) <= high);
  return inside.length > 1 ? inside : roundValues(10 ** low, 10 ** high, 4);
}

function nearest(steps, step) {
  let low = 0, high = steps.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (steps[middle] < step) low = middle + 1;
    else high = middle;
  }
  return low > 0 && step - steps[low - 1] < steps[low] - step ? low - 1 : low;
}

function makePlot(figure, data) {
  const holder = figure.querySelector(".chart");
  const described = holder.querySelector("title");
  const height = Number(figure.dataset.height);
  const many = data.lines.length > 6;
  const parts = !data.span.every(Number.isInteger);
  const [first, last] = data.span;
  const state = { log: data.log, from: first, to: last, step: null, line: 0, hidden: new Set() };
  const reader = document.createElement("div");
  const said = document.createElement("output");
  const legend = document.createElement("p");
  let printed = false; // on paper every chart has the width that it was written with
  let place = null; // how steps and values become pixels, as last drawn

  const isShown = (line) => !line.c.split(" ").some((look) => state.hidden.has(look)) && !state.hidden.has(`key ${line.k}`);
  const shown = () => data.lines.filter(isShown);
  const readable = () => shown().filter((line) => !line.c.includes("level") && line.s.length);

  function scale(width) {
    const narrow = width < 640;
    const box = { left: 72, right: narrow ? 30 : 240, top: 16, bottom: 40, width, narrow };
    let values = [];
    for (const line of shown())
      line.s.forEach((step, at) => {
        const value = line.v[at];
        if (value !== null && step >= state.from && step <= state.to && (!state.log || value > 0)) values.push(value);
      });
    if (state.from === first && state.to === last)
      values = values.concat(data.refs.map((one) => one.v).filter((one) => one !== null && (!state.log || one > 0)));
    let high = values.reduce((most, one) => Math.max(most, one), -Infinity);
    let low = values.reduce((least, one) => Math.min(least, one), Infinity);
    if (!values.length) [low, high] = state.log ? [1, 10] : [0, 1];
    if (state.log) [low, high] = [Math.log10(Math.max(low, high * 1e-6)), Math.log10(high)];
    if (low === 0 && high === 0) [low, high] = [-0.04, 1]; // 0 alone is the floor of the picture
    else {
      const size = Math.max(Math.abs(low), Math.abs(high));
      const margin = high / 2 - low / 2 > 0.5e-7 * size ? 0.04 * (high - low) : 0.05 * size || 1;
      low -= margin;
      high += margin;
    }
    const inner = width - box.left - box.right;
    box.low = low;
    box.high = high;
    box.x = (step) => box.left + ((step - state.from) / (state.to - state.from)) * inner;
    box.step = (x) => state.from + ((x - box.left) / inner) * (state.to - state.from);
    box.y = (value) => {
      const level = state.log ? (value > 0 ? Math.log10(value) : low) : value;
      const share = (level / 2 - low / 2) / (high / 2 - low / 2);
      return height - box.bottom - Math.min(1, Math.max(0, share)) * (height - box.top - box.bottom);
    };
    return box;
  }

  function label(parent, x, y, text, look, anchor) {
    parent.append(element("text", { class: look, x: x.toFixed(1), y: y.toFixed(1), "text-anchor": anchor }, text));
  }

  // The points next outside of the picture count too: the line goes on to its edge, where it is cut.
  function drawLine(svg, line, box) {
    let points = [];
    const from = nearest(line.s, state.from) - 2, to = nearest(line.s, state.to) + 2;
    const flush = () => {
      if (points.length > 1) svg.append(element("polyline", { class: `line ${line.c}`, points: points.join(" ") }));
      else if (points.length) {
        const [x, y] = points[0].split(",");
        svg.append(element("circle", { class: `dot ${line.c}`, cx: x, cy: y, r: 3 }));
      }
      points = [];
    };
    line.s.forEach((step, at) => {
      const value = line.v[at];
      if (value === null) return flush();
      if (at < from || at > to || (state.log && value <= 0)) return undefined;
      points.push(`${box.x(step).toFixed(1)},${box.y(value).toFixed(1)}`);
      return undefined;
    });
    flush();
  }

  function drawArea(svg, area, box) {
    const edge = (values) => area.s.map((step, at) => `${box.x(step).toFixed(1)},${box.y(values[at]).toFixed(1)}`);
    const points = [...edge(area.b), ...edge(area.a).reverse()].join(" ");
    svg.append(element("polygon", { class: `area ${area.c}`, points }));
  }

  function drawMarks(svg, box) {
    const taken = [];
    for (const mark of data.marks) {
      if (mark.s < state.from || mark.s > state.to) continue;
      const x = box.x(mark.s), y = mark.v === null ? box.top + 10 : box.y(mark.v);
      if (mark.t || mark.v === null)
        svg.append(element("line", { class: `at ${mark.c}`, x1: x, x2: x, y1: box.top, y2: height - box.bottom }));
      if (mark.v !== null) svg.append(element("circle", { class: `mark ${mark.c}`, cx: x, cy: y, r: 6 }));
      if (!mark.t) continue;
      const width = 7.2 * mark.t.length;
      const leftwards = x + 12 + width > box.width - box.right + (box.narrow ? 0 : 20) && x - 12 - width > 0;
      const left = leftwards ? x - 12 - width : x + 12;
      let top = Math.max(y - 8, box.top + 12);
      const down = y < height / 2 ? 16 : -16; // never onto the axis
      for (const _ of taken)
        for (const [a, b, c] of taken) if (left < b && a < left + width && Math.abs(c - top) < 16) top = c + down;
      taken.push([left, left + width, top]);
      label(svg, leftwards ? x - 12 : x + 12, top, mark.t, `markt ${mark.c}`, leftwards ? "end" : "start");
    }
  }

  function drawEnds(svg, box) {
    const wanted = data.refs.map((one) => [box.y(one.v), one.t, `ref ${one.c}`]);
    legend.replaceChildren();
    for (const line of shown()) {
      const inside = line.s.map((step, at) => [step, line.v[at]]).filter(([step, value]) =>
        value !== null && step >= state.from && step <= state.to);
      if (!line.t || !inside.length) continue;
      wanted.push([box.y(inside[inside.length - 1][1]), line.t, line.c]);
    }
    if (box.narrow) {
      for (const [, text, look] of wanted) {
        const entry = document.createElement("span");
        entry.className = `key ${look}`;
        entry.textContent = text;
        legend.append(entry, " ");
      }
      return;
    }
    wanted.sort((one, other) => one[0] - other[0]);
    let bottom = -Infinity;
    for (const one of wanted) one[0] = bottom = Math.max(one[0], bottom + 16);
    let limit = height - box.bottom + 4;
    for (const one of wanted.slice().reverse()) {
      one[0] = Math.min(one[0], limit);
      limit = one[0] - 16;
    }
    for (const [y, text, look] of wanted) label(svg, box.width - box.right + 8, y + 4, text, `end ${look}`, "start");
  }

  // Names of lines that are wider than the room for them end in an ellipsis.
  function shorten(svg, room) {
    for (const one of svg.querySelectorAll(".end")) {
      const long = one.getComputedTextLength();
      if (long > room)
        one.textContent = `${one.textContent.slice(0, Math.max(1, Math.floor((one.textContent.length * room) / long) - 2))}…`;
    }
  }

  function draw() {
    const width = printed ? (figure.classList.contains("small") ? 440 : 900) : Math.max(280, holder.clientWidth);
    const box = scale(width);
    place = box;
    const svg = element("svg", { class: "plot", viewBox: `0 0 ${width} ${height}`, role: "img" });
    svg.setAttribute("aria-labelledby", described.id);
    svg.append(described);
    const right = width - box.right, inner = height - box.top - box.bottom;
    for (const band of data.bands) {
      const a = Math.max(box.left, box.x(Math.max(band.a, state.from)));
      const b = Math.min(right, Math.max(box.x(Math.min(band.b, state.to)), a + 3));
      if (band.b < state.from || band.a > state.to) continue;
      svg.append(element("rect", { class: "band", x: a, y: box.top, width: b - a, height: inner }));
      const towardsEnd = a > width / 2;
      if (band.t) label(svg, towardsEnd ? b - 6 : a + 6, height - box.bottom - 8, band.t, "bandt", towardsEnd ? "end" : "start");
    }
    for (const value of valueTicks(box.low, box.high, state.log)) {
      const y = box.y(value);
      svg.append(element("line", { class: "grid", x1: box.left, x2: right, y1: y, y2: y }));
      label(svg, box.left - 8, y + 4, tickText(value), "tick", "end");
    }
    for (const step of roundValues(state.from, state.to, box.narrow ? 4 : 6).filter((one) => parts || Number.isInteger(one)))
      label(svg, box.x(step), height - box.bottom + 18, tickText(step), "tick", "middle");
    label(svg, (box.left + right) / 2, height - 4, data.unit, "tick", "middle");
    for (const one of data.refs) {
      const y = box.y(one.v);
      svg.append(element("line", { class: `ref ${one.c}`, x1: box.left, x2: right, y1: y, y2: y }));
    }
    const inside = element("svg", { x: box.left, y: 0, width: right - box.left, height,
      viewBox: `${box.left} 0 ${right - box.left} ${height}` });
    svg.append(inside);
    data.areas.forEach((area) => drawArea(inside, area, box));
    shown().filter((line) => line.s.length).forEach((line) => drawLine(inside, line, box));
    drawMarks(svg, box);
    drawEnds(svg, box);
    holder.querySelector("svg").replaceWith(svg);
    shorten(svg, box.right - 12);
    if (state.step !== null) point(false);
  }

  function drawTip(svg, x, words) {
    const width = 16 + 7 * Math.max(...words.map((one) => one.length));
    const left = x + 10 + width > place.width ? Math.max(0, x - 10 - width) : x + 10;
    const top = place.top + 34;
    svg.append(element("rect", { class: "cursor tip", x: left, y: top, width, height: 10 + 17 * words.length, rx: 4 }));
    words.forEach((one, at) =>
      svg.append(element("text", { class: "cursor tipt", x: left + 8, y: top + 18 + 17 * at }, one)));
  }

  function linesAt() {
    const lines = readable();
    return many ? lines.slice(state.line, state.line + 1) : lines;
  }

  function point(announce = true) {
    const svg = holder.querySelector("svg");
    svg.querySelectorAll(".cursor").forEach((one) => one.remove());
    const lines = linesAt();
    if (!lines.length || state.step === null) return;
    const told = lines.map((line) => {
      const at = nearest(line.s, state.step);
      return { name: line.n, step: line.s[at], value: line.v[at] };
    });
    state.step = told[0].step;
    const x = place.x(state.step);
    if (x >= place.left - 1 && x <= place.width - place.right + 1)
      svg.append(element("line", { class: "cursor hair", x1: x, x2: x, y1: place.top, y2: height - place.bottom }));
    for (const one of told)
      if (one.value !== null && one.step >= state.from && one.step <= state.to && (!state.log || one.value > 0))
        svg.append(element("circle", { class: "cursor dot", cx: place.x(one.step), cy: place.y(one.value), r: 4 }));
    const text = told.map((one, at) => {
      const elsewhere = at && one.step !== state.step ? ` (${data.unit} ${one.step})` : "";
      return `${one.name} ${format(one.value)}${elsewhere}`;
    });
    drawTip(svg, x, [`${data.unit} ${state.step}`, ...text]);
    const words = `${data.unit} ${state.step}: ${text.join(" · ")}`;
    said.textContent = words;
    if (announce) {
      reader.setAttribute("aria-valuenow", state.step);
      reader.setAttribute("aria-valuetext", words);
    }
  }

  function zoom(from, to) {
    const least = Math.max(parts ? 0 : 2, (last - first) / 1000);
    state.from = Math.max(first, parts ? from : Math.floor(from));
    state.to = Math.min(last, Math.max(parts ? to : Math.ceil(to), state.from + least));
    const whole = figure.querySelector("[data-do=whole]");
    if (whole) whole.hidden = state.from === first && state.to === last;
    draw();
  }

  function zoomBy(factor) {
    const centre = state.step ?? (state.from + state.to) / 2;
    const half = ((state.to - state.from) * factor) / 2;
    zoom(centre - half, centre + half);
  }

  function move(by) {
    const lines = readable();
    if (!lines.length) return;
    state.line = Math.min(state.line, lines.length - 1);
    const steps = lines[many ? state.line : 0].s;
    const now = state.step === null ? (by > 0 ? -1 : steps.length) : nearest(steps, state.step);
    let next = Math.min(steps.length - 1, Math.max(0, now + by));
    // The same step stands twice where a line breaks off.
    while (next > 0 && next < steps.length - 1 && steps[next] === state.step) next += Math.sign(by);
    state.step = steps[next];
    point();
  }

  const keys = {
    ArrowRight: () => move(1),
    ArrowLeft: () => move(-1),
    PageUp: () => move(20),
    PageDown: () => move(-20),
    Home: () => move(-1e9),
    End: () => move(1e9),
    ArrowUp: () => { if (many) { state.line = Math.max(0, state.line - 1); move(0); } else move(1); },
    ArrowDown: () => { if (many) { state.line = Math.min(readable().length - 1, state.line + 1); move(0); } else move(-1); },
    "+": () => zoomBy(0.5),
    "=": () => zoomBy(0.5),
    "-": () => zoomBy(2),
    Escape: () => zoom(first, last),
  };

  function choose(event) {
    const box = holder.getBoundingClientRect();
    state.step = Math.min(state.to, Math.max(state.from, place.step(event.clientX - box.left)));
    if (many) {
      const lines = readable();
      const y = event.clientY - box.top;
      const off = lines.map((line) => {
        const value = line.v[nearest(line.s, state.step)];
        return value === null ? Infinity : Math.abs(place.y(value) - y);
      });
      state.line = Math.max(0, off.indexOf(Math.min(...off)));
    }
    point(false);
  }

  reader.className = "reader";
  for (const [name, value] of Object.entries({
    role: "slider", tabindex: "0", "aria-label": `Values of the chart: ${figure.dataset.title}`,
    "aria-valuemin": first, "aria-valuemax": last, "aria-valuenow": first,
    "aria-valuetext": "Arrow keys read values, plus and minus zoom, Escape shows the whole run",
  })) reader.setAttribute(name, value);
  said.className = "values";
  legend.className = "legend";
  legend.setAttribute("aria-hidden", "true");
  holder.append(reader);
  holder.after(said, legend);
  let down = null;
  reader.addEventListener("pointerdown", (event) => { down = event.clientX; });
  reader.addEventListener("pointermove", choose);
  reader.addEventListener("pointerup", (event) => {
    const box = holder.getBoundingClientRect();
    if (down !== null && Math.abs(event.clientX - down) > 12) {
      const [a, b] = [down, event.clientX].sort((one, other) => one - other);
      zoom(place.step(a - box.left), place.step(b - box.left));
    }
    down = null;
  });
  reader.addEventListener("pointercancel", () => { down = null; });
  reader.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });
  figure.querySelectorAll("[data-do]").forEach((button) => {
    const what = button.dataset.do;
    button.hidden = what === "whole" || ((what === "log" || what === "linear") && !data.may);
    const press = () => button.setAttribute("aria-pressed",
      what === "log" ? state.log : what === "linear" ? !state.log : !state.hidden.has(what));
    if (what !== "whole") press();
    button.addEventListener("click", () => {
      if (what === "whole") return zoom(first, last);
      if (what === "log" || what === "linear") state.log = what === "log";
      else if (!state.hidden.delete(what)) state.hidden.add(what);
      figure.querySelectorAll("[data-do=log],[data-do=linear]").forEach((one) =>
        one.setAttribute("aria-pressed", one.dataset.do === "log" ? state.log : !state.log));
      press();
      return draw();
    });
  });
  figure.querySelectorAll(".hint").forEach((hint) => { hint.hidden = false; });
  draw();
  for (const what of ["beforeprint", "afterprint"])
    addEventListener(what, () => { printed = what === "beforeprint"; draw(); });
  let drawn = holder.clientWidth;
  new ResizeObserver(() => {
    if (holder.clientWidth !== drawn) { drawn = holder.clientWidth; draw(); }
  }).observe(holder);
  return {
    show(keys) { // of lines with a key only these
      state.hidden = new Set(data.lines.filter((line) => !keys.has(line.k)).map((line) => `key ${line.k}`));
      state.line = 0;
      draw();
    },
  };
}

const PLOTS = DATA.plots.map((data) => makePlot(document.getElementById(`figure-${data.name}`), data));
// Where no window may be opened an address is text to select.
if (FRAMED) document.querySelectorAll("a[href^=http]").forEach((link) => {
  const text = document.createElement("span");
  text.className = "address";
  text.textContent = link.dataset.text ? `${link.dataset.text}: ${link.href}` : link.href;
  link.replaceWith(text);
});
