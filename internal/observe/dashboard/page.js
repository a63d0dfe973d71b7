"use strict";
// The page's state is the newest snapshot and the columns of the heat map. What comes from the job is written with
// textContent alone, so none of it is ever markup, and read by parse alone.
const at = (id) => document.getElementById(id);
const mostColumns = 180, mostRows = 64, mostListed = 64;
let now = null, columns = [], mark = null, lines = false;

// visible is text with what could hide or reorder it written out, as package printable has it for terminals.
const brief = { "\x07": "a", "\b": "b", "\v": "v", "\f": "f", "\r": "r" };
const visible = (text) => text.replace(/[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, (c) => {
  const hex = c.charCodeAt(0).toString(16);
  return `\\${brief[c] ?? (c < "\x80" ? `x${hex.padStart(2, "0")}` : `u${hex.padStart(4, "0")}`)}`;
});
const parse = (text) => JSON.parse(text, (_, v) => typeof v === "string" ? visible(v) : v);

const put = (node, text) => { if (node.textContent !== text) node.textContent = text; };
const three = (v) => v >= 100 ? v.toFixed(0) : String(Number(v.toPrecision(3)));
const bytes = (v) => {
  for (const [size, unit] of [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) if (v >= size) return `${three(v / size)} ${unit}`;
  return `${v.toFixed(0)} B`;
};
const seconds = (v) => {
  if (v >= 60) return `${Math.floor(v / 60)}m${String(Math.floor(v % 60)).padStart(2, "0")}s`;
  if (v >= 1) return `${v.toFixed(1)} s`;
  return v >= 1e-3 ? `${three(v * 1e3)} ms` : `${three(v * 1e6)} µs`;
};
const percent = (v) => `${v.toFixed(0)} %`;
const octets = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
const clock = (ms) => new Date(ms).toLocaleTimeString();

// rows fills a table's body, and leaves what has not changed alone. A row is a list of [text, class].
function rows(body, list, empty) {
  if (!list.length && empty) list = [[[empty, ""]]];
  while (body.rows.length > list.length) body.deleteRow(-1);
  list.forEach((cells, i) => {
    const row = body.rows[i] ?? body.insertRow();
    while (row.cells.length > cells.length) row.deleteCell(-1);
    cells.forEach(([text, kind], k) => {
      const cell = row.cells[k] ?? row.insertCell();
      put(cell, text);
      if (cell.className !== kind) cell.className = kind;
    });
  });
}

// groups are the rows of the heat map: ranks, or hosts where there are many ranks, or blocks of ranks on few hosts.
function groups() {
  const ranks = now.ranks.map((_, i) => i);
  if (ranks.length <= mostRows) return { are: "rank", list: ranks.map((i) => ({ name: `rank ${i}`, ranks: [i] })) };
  const hosts = now.hosts.map((name) => ({ name, ranks: [] }));
  now.ranks.forEach((r, i) => { if (r.host >= 0) hosts[r.host].ranks.push(i); });
  if (hosts.length > 1 && hosts.length <= mostRows) return { are: "host", list: hosts };
  const each = Math.ceil(ranks.length / mostRows), list = [];
  for (let i = 0; i < ranks.length; i += each) {
    const part = ranks.slice(i, i + each);
    list.push({ name: `${part[0]}-${part.at(-1)}`, ranks: part });
  }
  return { are: "block of ranks", list };
}

const most = (values, ranks) => ranks.reduce((m, i) => Math.max(m, values[i] ?? 0), 0);
const mean = (values, ranks) => ranks.length ? ranks.reduce((s, i) => s + (values[i] ?? 0), 0) / ranks.length : 0;

// sized is a canvas of so many pixels in height, empty, with its context and width.
function sized(canvas, total) {
  const scale = window.devicePixelRatio || 1, width = canvas.clientWidth;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(total * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(total * scale);
    canvas.style.height = `${total}px`;
  }
  const c = canvas.getContext("2d");
  c.setTransform(scale, 0, 0, scale, 0, 0);
  c.clearRect(0, 0, width, total);
  return { c, width, scale };
}

// resolve is a color of the style sheet, as a canvas needs it.
function resolve(name) {
  const probe = at("state").style;
  probe.color = `var(${name})`;
  const v = getComputedStyle(at("state")).color;
  probe.color = "";
  return v;
}

// drawSteps draws the step time over the seconds of the heat map below it, from 0 to a round number above the longest.
function drawSteps() {
  const known = columns.filter((col) => col.step > 0);
  at("steps").hidden = !known.length;
  if (!known.length) return put(at("steps-text"), "No step has been seen yet.");
  const height = 70, { c, width } = sized(at("steps"), height + 16), longest = Math.max(...known.map((col) => col.step));
  const power = 10 ** Math.floor(Math.log10(longest)), top = [1, 2, 5, 10].map((f) => f * power).find((v) => v >= longest * .999);
  const label = Number(at("heat").dataset.label) || 60, step = (width - label) / mostColumns;
  c.strokeStyle = resolve("--line");
  c.strokeRect(label - .5, .5, width - label, height);
  c.font = "12px system-ui, sans-serif";
  c.fillStyle = resolve("--soft");
  c.textBaseline = "middle";
  c.fillText(seconds(top), 0, 7, label - 8);
  c.fillText("0", 0, height - 5, label - 8);
  c.strokeStyle = resolve("--wait");
  c.lineWidth = 1.5;
  c.beginPath();
  let drawn = false; // the column before this one
  columns.forEach((col, k) => {
    const x = width - (columns.length - k - .5) * step, y = height - Math.min(1, col.step / top) * (height - 4);
    if (col.step > 0) drawn ? c.lineTo(x, y) : c.moveTo(x - step / 2, y), c.lineTo(x, y);
    drawn = col.step > 0;
  });
  c.stroke();
  const shortest = Math.min(...known.map((col) => col.step));
  put(at("steps-text"), `${now.steps} steps; one takes ${seconds(now.step)}, ${seconds(shortest)} to ${seconds(longest)} in the last ${known.length} seconds.`);
  at("steps").setAttribute("aria-label", "Step time over the last minutes");
}

function draw() {
  if (!now) return;
  const { are, list } = groups(), canvas = at("heat");
  put(at("rows-are"), are);
  const height = Math.max(7, Math.min(22, Math.floor(420 / Math.max(1, list.length))));
  const total = height * list.length + 16, { c, width, scale } = sized(canvas, total);
  const wait = resolve("--wait"), late = resolve("--late"), text = resolve("--soft"), line = resolve("--line");
  c.font = `${Math.min(12, height + 3)}px system-ui, sans-serif`;
  c.textBaseline = "middle";
  const every = Math.max(1, Math.ceil(13 / height));
  const label = Math.min(160, 10 + Math.max(...list.map((g) => c.measureText(g.name).width), 30));
  const step = (width - label) / mostColumns;
  c.fillStyle = text;
  list.forEach((g, i) => { if (i % every === 0) c.fillText(g.name, 0, height * i + height / 2, label - 8); });
  columns.forEach((col, k) => {
    const x = width - (columns.length - k) * step;
    list.forEach((g, i) => {
      const l = most(col.late, g.ranks), w = mean(col.waiting, g.ranks);
      if (l < 5 && w < 2) return;
      c.globalAlpha = l >= 5 ? 0.25 + 0.75 * l / 100 : 0.08 + 0.92 * w / 100;
      c.fillStyle = l >= 5 ? late : wait;
      c.fillRect(x, height * i, Math.ceil(step * scale) / scale, height - 1);
    });
  });
  c.globalAlpha = 1;
  c.strokeStyle = line;
  c.strokeRect(label - .5, .5, width - label, height * list.length);
  c.fillStyle = text;
  c.fillText(`${Math.round(mostColumns / 60)} minutes ago`, label, total - 7);
  c.textAlign = "right";
  c.fillText("now", width, total - 7);
  c.textAlign = "left";
  if (mark) {
    mark.row = Math.max(0, Math.min(list.length - 1, mark.row));
    mark.back = Math.max(0, Math.min(columns.length - 1, mark.back));
    c.strokeStyle = resolve("--text");
    c.strokeRect(width - (mark.back + 1) * step, height * mark.row, Math.max(step, 3), height);
    const col = columns[columns.length - 1 - mark.back], g = list[mark.row];
    if (col && g) put(at("cell"), `${g.name}, ${clock(col.time)}: waits ${percent(mean(col.waiting, g.ranks))}, others wait for it ${percent(most(col.late, g.ranks))}`);
  }
  canvas.setAttribute("aria-label", `Heat map of ${list.length} rows over the last ${columns.length} seconds. ${now.sentence}`);
  canvas.dataset.label = label;
  drawSteps();
}

function table() {
  const host = at("host").value;
  let list = now.ranks.map((r, i) => ({ ...r, i })).filter((r) => host === "" || now.hosts[r.host] === host);
  const all = list.length;
  if (all > mostListed) {
    list.sort((a, b) => b.late - a.late || b.waiting - a.waiting || a.i - b.i);
    list = list.slice(0, mostListed);
  }
  put(at("shown"), all > mostListed ? `the ${mostListed} of ${all} for which others wait most, or which wait most` : "");
  rows(at("table"), list.map((r) => [
    [String(r.i), "n"], [now.hosts[r.host] ?? "–", ""], [percent(r.waiting), "n"],
    [r.whom < 0 ? "–" : `rank ${r.whom}: ${percent(r.whomshare)}`, ""], [percent(r.late), r.late >= 10 ? "n bad" : "n"], [String(r.pending), "n"], [r.cores.toFixed(2), "n"],
    [percent(100 * r.starved), r.starved > .2 ? "n bad" : "n"], [r.memory ? bytes(r.memory) : "–", "n"],
    [r.silent < 0 ? "never" : r.silent < 4 ? "now" : `${seconds(r.silent)} ago`, r.silent < 0 || r.silent >= 4 ? "n bad" : "n"],
  ]));
}

function hosts() {
  const select = at("host"), want = ["", ...now.hosts];
  if (select.options.length === want.length && want.every((h, i) => select.options[i].value === h)) return;
  const chosen = select.value;
  select.replaceChildren(...want.map((h) => { const o = document.createElement("option"); o.value = h; o.textContent = h || "all"; return o; }));
  select.value = want.includes(chosen) ? chosen : "";
}

function history() {
  const list = at("history"), events = [...now.history].reverse();
  const key = events.map((e) => `${e.time} ${e.text}`).join("\n");
  if (list.dataset.key === key) return;
  list.dataset.key = key;
  list.replaceChildren(...events.map((e) => {
    const item = document.createElement("li"), when = document.createElement("time");
    when.textContent = clock(e.time);
    item.append(when, e.text);
    return item;
  }));
}

let before = null; // kinds of some seconds ago, for their rates
function kinds() {
  const sums = new Map(now.kinds.map((k) => [`${k.op} ${k.class}`, k]));
  before = [...(before ?? []), { time: now.time, sums }].slice(-6);
  const first = before[0], dt = Math.max(1, (now.time - first.time) / 1e3), ranks = Math.max(1, now.size);
  rows(at("kinds"), now.kinds.slice(0, 12).map((k) => {
    const old = first.sums.get(`${k.op} ${k.class}`) ?? { count: 0, bytes: 0 };
    const rate = (a, b, form) => before.length > 1 ? form(Math.max(0, a - b) / dt / ranks) : "–";
    const busy = k.seconds - (old.seconds ?? 0), bus = busy > 0 && k.bus > 0 && before.length > 1 ? `${bytes((k.bus - (old.bus ?? 0)) / busy)}/s` : "–";
    return [[k.op, ""], [k.class, ""], [rate(k.count, old.count, three), "n"], [rate(k.bytes, old.bytes, (v) => `${bytes(v)}/s`), "n"], [seconds(k.mean), "n"], [bus, "n"]];
  }), "none yet");
}

function links() {
  const hosts = now.hosts.length > 1;
  rows(at("links"), now.links.slice(0, 12).map((l) => [
    [l.nic ? `${l.link}, ${l.nic}` : l.link, ""], [l.class, ""], [`${bytes(l.rate)}/s`, "n"],
    [hosts ? `${bytes(l.hostrate)}/s, ${l.host}` : `${bytes(l.hostrate)}/s`, "n"], [l.limit ? `${bytes(l.limit)}/s` : "unknown", "n"],
    [l.limit ? percent(100 * l.hostrate / l.limit) : "–", "n"]]), "nothing was sent of late");
}

function tables() {
  const list = now.tables ?? [];
  at("tables-section").hidden = !list.length;
  rows(at("tables"), list.map((t) => [
    [t.set ? `${t.name}, process set ${t.set}` : t.name, ""], [t.rows.toLocaleString("en"), "n"], [bytes(t.bytes), "n"],
    [t.pull ? seconds(t.pull) : "–", "n"], [t.push ? seconds(t.push) : "–", "n"], [percent(100 * t.hottest), "n"]]));
}

function show() {
  put(at("sentence"), now.sentence);
  at("sentence").dataset.tone = now.tone;
  at("where").hidden = !now.where;
  if (now.where) put(at("where"), `Rank ${now.where.rank}: ${now.where.text} Stack: ${now.where.frames.join(" › ")}`);
  put(at("ranks"), now.joined < now.size ? `${now.joined} of ${now.size}` : String(now.size));
  put(at("step"), now.step > 0 ? seconds(now.step) : "–");
  put(at("samples"), three(now.samples));
  at("samples").parentElement.hidden = !(now.samples > 0);
  put(at("collectives"), three(now.collectives));
  put(at("bandwidth"), `${bytes(now.bytes)}/s`);
  put(at("waiting"), percent(100 * now.waiting));
  put(at("busy"), percent(100 * now.communicating));
  put(at("memory"), bytes(now.ranks.reduce((s, r) => s + r.memory, 0)));
  document.title = `${{ fine: "", slow: "● ", stuck: "■ " }[now.tone] ?? ""}gorovod: ${now.size} ranks`;
  rows(at("open"), now.open.map((o) => [[o.name, ""], [o.set ? `${o.op}, process set ${o.set}` : o.op, ""], [seconds(o.age), "n"],
    [o.state === "executes" ? `${o.waits} (executing)` : o.waits, ""], [o.missing || "–", o.missing ? "bad" : ""]]), "none");
  kinds();
  links();
  tables();
  hosts();
  table();
  history();
  draw();
}

const column = (c) => ({ time: c.time, step: c.step, waiting: octets(c.waiting), late: octets(c.late) });
// key is the page's half of its session, if it needs one: see session.go.
const key = () => { try { return encodeURIComponent(localStorage.getItem("key") ?? ""); } catch { return ""; } };
const source = new EventSource(`/events?key=${key()}`);
source.addEventListener("past", (e) => {
  const past = parse(e.data);
  columns = past.columns.map(column);
  lines = past.lines;
  if (!lines) put(at("lines"), "Output can hold secrets. It is shown only where a token is needed: see GOROVOD_METRICS_TOKEN_FILE.");
});
source.addEventListener("now", (e) => {
  const next = parse(e.data);
  if (now && next.world !== now.world) { columns = []; before = null; }
  const last = columns.at(-1);
  if (!last || next.column.time > last.time) columns = [...columns, column(next.column)].slice(-mostColumns);
  now = next;
  put(at("state"), `gorovod ${now.version}, live`);
  show();
});
source.addEventListener("end", (e) => {
  const ending = parse(e.data);
  source.close(); // else the browser would ask a launcher that is gone again and again
  put(at("sentence"), ending.code === 0 ? "The job has ended well." : `The job has ended with exit code ${ending.code}${ending.text ? `: ${ending.text}` : "."}`);
  at("sentence").dataset.tone = ending.code === 0 ? "fine" : "stuck";
  put(at("state"), "the job has ended; what is below is its last state");
  document.title = ending.code === 0 ? "gorovod: ended" : "■ gorovod: failed";
});
source.onerror = async () => {
  put(at("state"), "the job has ended, or its launcher cannot be reached");
  if (source.readyState !== EventSource.CLOSED) return; // the browser tries again
  const answer = await fetch(`/events?key=${key()}`, { method: "HEAD" }).catch(() => null);
  if (answer?.status === 401) location.replace("/login");
  else if (answer?.ok) setTimeout(() => location.reload(), 1000); // the session is another one, or there was no room
};

at("heat").addEventListener("keydown", (e) => {
  const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, 1], ArrowRight: [0, -1] }[e.key];
  if (!move) return;
  e.preventDefault();
  mark = mark ? { row: mark.row + move[0], back: mark.back + move[1] } : { row: 0, back: 0 };
  draw();
});
at("heat").addEventListener("pointermove", (e) => {
  if (!now) return;
  const canvas = at("heat"), step = (canvas.clientWidth - Number(canvas.dataset.label)) / mostColumns;
  const list = groups().list, height = (canvas.clientHeight - 16) / Math.max(1, list.length);
  mark = { row: Math.floor(e.offsetY / height), back: Math.floor((canvas.clientWidth - e.offsetX) / step) };
  draw();
});
at("host").addEventListener("change", () => now && table());
at("theme").addEventListener("click", () => {
  const dark = document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  document.documentElement.dataset.theme = dark === "dark" ? "light" : "dark";
  draw();
});
at("lines-form").addEventListener("submit", async (e) => {
  e.preventDefault();
  if (!lines) return;
  const answer = await fetch(`/lines?rank=${encodeURIComponent(at("lines-rank").value)}&key=${key()}`);
  if (!answer.ok) return put(at("lines"), visible(await answer.text()));
  const text = parse(await answer.text());
  put(at("lines"), [text.stdout, text.stderr && `stderr:\n${text.stderr}`].filter(Boolean).join("\n\n") || "no output yet");
});
window.addEventListener("resize", draw);
