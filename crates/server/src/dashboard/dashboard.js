"use strict";
// Asks the node for its numbers and draws them. Text of the node is only ever set as text.

const EVERY_MS = 2000;
const SPAN_MS = 600000;
const [WIDTH, HEIGHT, LEFT, BOTTOM] = [360, 130, 54, 18];

const number = new Intl.NumberFormat("en", { maximumSignificantDigits: 3, notation: "compact" });
const exact = new Intl.NumberFormat("en");
const clock = (ms) => new Date(ms).toLocaleTimeString("en-GB");
const byId = (id) => document.getElementById(id);

function time(seconds) {
    if (seconds >= 1) return `${number.format(seconds)} s`;
    return seconds >= 0.001 ? `${number.format(seconds * 1e3)} ms` : `${number.format(seconds * 1e6)} µs`;
}

function size(bytes) {
    const at = bytes >= 1 << 30 ? 3 : bytes >= 1 << 20 ? 2 : bytes >= 1 << 10 ? 1 : 0;
    return `${number.format(bytes / 1024 ** at)} ${["B", "KiB", "MiB", "GiB"][at]}`;
}

function element(name, content, attributes = {}) {
    const made = document.createElement(name);
    made.append(content);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
}

function drawing(name, attributes, text = "") {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.textContent = text;
    return made;
}

// The smallest of 1, 2, 5, 10, 20, … that is not below the value.
function round(value) {
    if (!(value > 0)) return 1;
    const unit = 10 ** Math.floor(Math.log10(value));
    return [1, 2, 5, 10].map((times) => times * unit).find((it) => it >= value * 0.9999);
}

// The same in the unit in which a size is written; 1024 of one are the next.
function roundSize(bytes) {
    const unit = 1024 ** Math.floor(Math.log2(Math.max(1, bytes)) / 10);
    const top = round(bytes / unit);
    return (top < 1000 ? top : 1024) * unit;
}

// A plot over time. Each line: a name, its colour, and its values with null for gaps.
function plot(title, format, end, times, lines, scale = round) {
    const shown = lines.filter((line) => line.always || line.values.some((value) => value > 0));
    const top = scale(Math.max(0, ...shown.flatMap((line) => line.values.map((value) => value ?? 0))));
    const x = (at) => LEFT + (WIDTH - LEFT) * (1 - (end - at) / SPAN_MS);
    const y = (value) => 6 + (HEIGHT - BOTTOM - 6) * (1 - value / top);
    const svg = drawing("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": title });
    for (const share of [0, 0.5, 1]) {
        const at = y(top * share);
        svg.append(drawing("line", { x1: LEFT, x2: WIDTH, y1: at, y2: at, class: "axis" }));
        svg.append(drawing("text", { x: LEFT - 5, y: at + 4, "text-anchor": "end" }, format(top * share)));
    }
    for (const minutes of [10, 5, 0]) {
        const anchor = minutes === 10 ? "start" : minutes === 0 ? "end" : "middle";
        const at = { x: x(end - minutes * 60000), y: HEIGHT - 3, "text-anchor": anchor };
        svg.append(drawing("text", at, minutes === 0 ? "now" : `${minutes} min ago`));
    }
    const caption = element("figcaption", element("strong", title));
    for (const line of shown) {
        let path = "";
        line.values.forEach((value, index) => {
            if (value === null || x(times[index]) < LEFT) return;
            const before = index > 0 && line.values[index - 1] !== null && x(times[index - 1]) >= LEFT;
            path += `${before ? "L" : "M"}${x(times[index]).toFixed(1)} ${y(value).toFixed(1)}`;
        });
        svg.append(drawing("path", { d: path, class: `plot colour${line.colour}` }));
        const last = line.values.findLast((value) => value !== null);
        const key = drawing("svg", { class: "key", viewBox: "0 0 16 10" });
        key.append(drawing("path", { d: "M0 5L16 5", class: `plot colour${line.colour}` }));
        const label = element("span", key);
        label.append(`${line.name}${last === undefined ? "" : ` ${format(last)}`}`);
        caption.append(label);
    }
    const figure = element("figure", caption);
    figure.append(svg);
    return figure;
}

function table(id, heads, rows) {
    const head = element("tr", "");
    for (const text of heads) head.append(element("th", text, { scope: "col" }));
    const lines = rows.map((cells) => {
        const row = element("tr", "");
        for (const cell of cells) {
            row.append(typeof cell === "object" ? element("td", cell.text, { class: "bad" }) : element("td", cell));
        }
        return row;
    });
    const empty = element("tr", element("td", "none yet", { colspan: heads.length }));
    byId(id).replaceChildren(head, ...(lines.length > 0 ? lines : [empty]));
}

function draw(view) {
    const { node, samples } = view;
    const names = new Map(view.nodes.map((it) => [it.node, it.name]));
    const name = (it) => names.get(it) ?? `N${it}`;
    const all = (list) => (list.length > 0 ? list.map(name).join(", ") : "–");
    if (node === null) {
        byId("summary").textContent = "No worker of this node answers.";
        return;
    }
    document.title = `${node.name} · Shoal`;
    byId("name").textContent = node.name;
    byId("summary").textContent = [
        node.cluster === null ? "no cluster yet" : `cluster ${node.cluster}`,
        node.admitted ? "admitted" : "not admitted yet",
        `epoch ${node.epoch}, settled up to ${node.settled}`,
        node.lease_ms === null ? "leases for ever" : `lease ${node.lease_ms} ms`,
        `${view.answering} of ${view.workers} workers answer`,
        `memory of shards ${size(node.memory_bytes)}`,
        view.resident_bytes === null ? "" : `of the process ${size(view.resident_bytes)}`,
        `version ${view.version}`,
    ].filter((part) => part !== "").join(" · ");

    const times = samples.map((it) => it.at_ms);
    const end = times.at(-1) ?? node.time_ns / 1e6;
    const line = (label, colour, of, always = true) => ({ name: label, colour, always, values: samples.map(of) });
    const outcomes = view.outcomes.map((label, at) => line(label, at, (it) => it.per_second[at], at === 0));
    const reasons = [...new Set(samples.flatMap((it) => Object.keys(it.conflicts_per_second)))].sort();
    const conflicts = reasons.map((label, at) => line(label, at, (it) => it.conflicts_per_second[label] ?? 0, at === 0));
    const rate = (value) => `${number.format(value)}/s`;
    byId("plots").replaceChildren(
        plot("Transactions by outcome", rate, end, times, outcomes),
        plot("Conflicts by reason", rate, end, times, conflicts),
        plot("Latency of commits", time, end, times, [
            line("p50", 0, (it) => it.p50_s),
            line("p99", 2, (it) => it.p99_s),
        ]),
        plot("Transactions under way", (it) => number.format(it), end, times, [line("open", 0, (it) => it.open)]),
        plot("Memory of shards", size, end, times, [line("here", 0, (it) => it.memory_bytes)], roundSize),
        plot("Entries that followers lack", (it) => number.format(it), end, times, [
            line("the farthest", 0, (it) => it.behind),
        ]),
    );

    const columns = node.shard_columns.filter((column) => !column.of_followers);
    const heads = ["shard", "leader", "voters", "learners", "empty", "followers lack", "memory here"];
    table("shards", [...heads, ...columns.map((it) => it.heading)], node.shards.map((shard) => {
        const behind = node.behind.find((it) => it.shard === shard.shard);
        const leader = node.leaders[shard.shard];
        return [
            `S${shard.shard}`,
            shard.outage ? { text: shard.outage } : leader === undefined ? "–" : name(leader),
            all(shard.voters),
            all(shard.learners),
            shard.empty.length > 0 ? { text: all(shard.empty) } : "–",
            behind === undefined ? "–" : exact.format(behind.entries),
            shard.memory_bytes === null ? "–" : size(shard.memory_bytes),
            ...columns.map((it) => (it.number in shard.numbers ? exact.format(shard.numbers[it.number]) : "–")),
        ];
    }));
    table("nodes", ["node", "datacenter", "address", "leads"], view.nodes.map((it) => [
        it.name,
        it.datacenter,
        it.address ?? "–",
        node.leaders.flatMap((leader, shard) => (leader === it.node ? [`S${shard}`] : [])).join(", ") || "–",
    ]));
    table("keys", ["key", "table", "use", "times"], view.hot_keys.map((it) => [it.key, it.table, it.what, exact.format(it.uses)]));
    table("epochs", ["epoch", "seen", "new leaders", "rolled back here"], view.epochs.toReversed().map((it) => [
        it.to === it.from + 1 ? `${it.to}` : `${it.from + 1} to ${it.to}`,
        clock(it.at_ms),
        it.leaders.map((change) => `S${change.shard}: ${name(change.from)} → ${name(change.to)}`).join(", ") || "–",
        exact.format(it.rolled_back),
    ]));
}

async function look() {
    try {
        const answer = await fetch("/dashboard.json", { signal: AbortSignal.timeout(4 * EVERY_MS) });
        draw(await answer.json());
        byId("summary").classList.remove("bad");
    } catch {
        byId("summary").textContent = "The node does not answer; what is below is old.";
        byId("summary").classList.add("bad");
    }
    setTimeout(look, EVERY_MS);
}

look();
