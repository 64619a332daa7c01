// The page works without this: it is then as of the time it was loaded. This follows the stream of events, draws the plots, and
// puts new tables in the place of old ones, node by node, so that what has the focus or is being read stays where it is.
"use strict";

const shown = 300; // seconds
const $ = (id) => document.getElementById(id);

// morph makes the element old like fresh. Elements with an id, and rows with a data-id, are found again by it.
function morph(old, fresh) {
	for (const { name } of [...old.attributes]) {
		if (!fresh.hasAttribute(name)) old.removeAttribute(name);
	}
	for (const { name, value } of fresh.attributes) {
		if (old.getAttribute(name) !== value) old.setAttribute(name, value);
	}
	const key = (node) => (node.nodeType === 1 ? node.id || node.dataset.id || "" : "");
	let at = old.firstChild;
	for (const next of [...fresh.childNodes]) {
		if (at && (at.nodeName !== next.nodeName || key(at) !== key(next))) {
			let found = at;
			while (found && !(found.nodeName === next.nodeName && key(found) === key(next) && key(next))) found = found.nextSibling;
			if (found) old.insertBefore(found, at);
			else old.insertBefore(document.importNode(next, true), at);
			at = found || at.previousSibling;
		} else if (!at) {
			old.appendChild(document.importNode(next, true));
			continue;
		}
		if (at.nodeType === 1) morph(at, next);
		else if (at.nodeValue !== next.nodeValue) at.nodeValue = next.nodeValue;
		at = at.nextSibling;
	}
	while (at) {
		const gone = at;
		at = at.nextSibling;
		gone.remove();
	}
}

const sources = {
	store: "--blue", cache: "--teal", local: "--orange", open: "--purple", closed: "--bad", blocked: "--warn", "missing-key": "--grey", never: "--grey",
};

function micros(us) {
	if (us == null) return "–";
	if (us < 1000) return us.toFixed(us < 10 ? 1 : 0) + " µs";
	return us < 1e6 ? (us / 1e3).toFixed(us < 1e4 ? 1 : 0) + " ms" : (us / 1e6).toFixed(1) + " s";
}

function perSecond(n) {
	return n == null ? "–" : n.toLocaleString("en", { maximumFractionDigits: n < 10 ? 1 : 0 });
}

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit", timeZone: "UTC" });

// lines are what each plot draws: a label, a colour, and its values in the history and in one snapshot.
const plots = [
	{
		at: "plot-outcome", format: perSecond,
		lines: [
			{ label: "allowed", color: "--blue", all: (h) => h.allowed, one: (n) => n.allowed },
			{ label: "denied", color: "--bad", all: (h) => h.denied, one: (n) => n.denied },
			{ label: "would deny", color: "--orange", dash: [4, 4], all: (h) => h.wouldDeny, one: (n) => n.wouldDeny },
		],
	},
	{
		at: "plot-source", format: perSecond,
		lines: Object.entries(sources).map(([label, color]) => ({
			label, color, all: (h) => h.bySource[label] || h.time.map(() => 0), one: (n) => n.bySource[label] || 0,
		})),
	},
	...["decision", "store"].map((name) => ({
		at: "plot-" + name, format: micros, log: true,
		lines: [
			{ label: "p50", color: "--blue", all: (h) => h[name].p50, one: (n) => n[name].p50 },
			{ label: "p99", color: "--orange", all: (h) => h[name].p99, one: (n) => n[name].p99 },
		],
	})),
];

function color(name) {
	return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function axis(extra) {
	return { stroke: color("--dim"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line") }, font: "12px system-ui", ...extra };
}

// decades leaves of the marks of a logarithmic axis those of 1, 10, 100 …
const decades = (u, marks) => marks.map((v) => (Math.abs(Math.log10(v) % 1) < 1e-9 ? v : null));

function yAxis(plot) {
	const y = axis({ size: 66, values: (u, list) => list.map((v) => (v == null ? "" : plot.format(v))) });
	if (plot.log) y.filter = y.grid.filter = y.ticks.filter = decades;
	return y;
}

function draw(plot) {
	const box = $(plot.at);
	if (plot.chart) plot.chart.destroy();
	box.replaceChildren();
	plot.chart = new uPlot({
		width: box.clientWidth, height: 180, cursor: { sync: { key: "all" } }, legend: { live: true },
		scales: {
			x: { time: true },
			y: plot.log ? { distr: 3, range: (u, min, max) => (min == null || max == null ? [1, 1000] : [10 ** Math.floor(Math.log10(min)), 10 ** Math.ceil(Math.log10(max * 1.001))]) }
				: { range: (u, min, max) => [0, Math.max(1, (max || 0) * 1.1)] },
		},
		axes: [axis({ values: (u, list) => list.map((t) => clock.format(t * 1000)), space: 80 }), yAxis(plot)],
		series: [
			{ label: "UTC", value: (u, t) => (t == null ? "–" : clock.format(t * 1000)) },
			...plot.lines.map((l) => ({ label: l.label, stroke: color(l.color), width: 1.5, dash: l.dash, points: { show: false }, value: (u, v) => plot.format(v) })),
		],
	}, plot.data, box);
	tell(plot);
}

// tell has the legend say the latest values, unless somebody points at others.
function tell(plot) {
	if (!(plot.chart.cursor.left >= 0) && plot.data[0].length) plot.chart.setLegend({ idx: plot.data[0].length - 1 }, false);
}

function drawAll() {
	for (const plot of plots) if (plot.data) draw(plot);
}

function history(h) {
	$("plots").hidden = false;
	for (const plot of plots) {
		plot.data = h.time === null ? [[], ...plot.lines.map(() => [])] : [[...h.time], ...plot.lines.map((l) => l.all(h))];
	}
	drawAll();
}

function append(now) {
	for (const plot of plots) {
		if (!plot.data || !now.time || now.time <= plot.data[0].at(-1)) continue;
		[now.time, ...plot.lines.map((l) => l.one(now))].forEach((value, i) => {
			plot.data[i].push(value);
			if (plot.data[i].length > shown) plot.data[i].shift();
		});
		plot.chart.setData(plot.data);
		tell(plot);
	}
}

let last = "";
function say(text, lost) {
	if (text === last) return; // screen readers would read it again
	last = text;
	$("connection").textContent = text;
	$("connection").classList.toggle("lost", lost);
}

let asOf = "";
function follow() {
	const events = new EventSource("/api/v1/events?tables=1");
	events.addEventListener("history", (e) => history(JSON.parse(e.data)));
	events.addEventListener("snapshot", (e) => {
		const s = JSON.parse(e.data);
		asOf = clock.format(new Date(s.at));
		append(s.now);
		const wrong = s.problems.length;
		document.title = (wrong ? "(" + wrong + ") " : "") + "envoy-rls";
		say("live, " + s.status.version + ", policies " + s.status.policies.version, false);
	});
	events.addEventListener("tables", (e) => {
		const fresh = new DOMParser().parseFromString(JSON.parse(e.data), "text/html");
		for (const id of ["now", "tables"]) morph($(id), fresh.getElementById(id));
	});
	events.addEventListener("error", () => {
		say("connection lost" + (asOf ? "; what you see is as of " + asOf + " UTC" : ""), true);
		if (events.readyState === EventSource.CLOSED) setTimeout(follow, 3000); // refused: the browser does not try again by itself
	});
}

// Buckets are changed by whoever has a token, or a client certificate. The token stays in this variable.
let token = "";
let chosen = null;
const labels = { reset: "Make the bucket full again", refund: "Give back to the bucket", block: "Block the bucket", unblock: "End the block" };

function ask(button) {
	const form = $("change");
	chosen = { action: button.dataset.action, id: button.dataset.bucket };
	$("dialog-title").textContent = labels[chosen.action];
	$("dialog-key").textContent = button.closest("tr").querySelector(".key").textContent.trim();
	$("do").textContent = button.textContent;
	$("do").disabled = false;
	$("result").textContent = "";
	for (const label of form.querySelectorAll(".only")) label.hidden = !label.dataset.for.split(" ").includes(chosen.action);
	form.elements.token.value = token;
	form.elements.reason.value = "";
	$("dialog").showModal();
}

async function change(form) {
	const { action, id } = chosen;
	const body = { id };
	if (action !== "unblock" && form.reason.value) body.reason = form.reason.value;
	if (action === "refund") body.cost = Number(form.cost.value);
	if (action === "block") body.for = form.for.value;
	token = form.token.value.trim();
	const headers = { "Content-Type": "application/json" };
	if (token) headers.Authorization = "Bearer " + token;
	$("do").disabled = true;
	$("result").textContent = "…";
	try {
		const answer = await fetch("/api/v1/buckets/" + action, { method: "POST", headers, body: JSON.stringify(body) });
		const said = await answer.json();
		if (answer.ok) {
			$("result").textContent = "Done, for " + (said.scope || "this instance") + ": " + said.after.remaining + " of " + said.limit + " left."
				+ (said.warning ? " " + said.warning : "");
			return;
		}
		$("result").textContent = "Refused: " + said.error;
	} catch (e) {
		$("result").textContent = "The service did not answer; whether the bucket was changed is not known.";
	}
	$("do").disabled = false;
}

if ($("dialog")) {
	document.addEventListener("click", (e) => {
		const button = e.target.closest("button.act");
		if (button) ask(button);
	});
	$("change").addEventListener("submit", (e) => {
		e.preventDefault();
		change(e.target.elements);
	});
	$("cancel").addEventListener("click", () => $("dialog").close());
}

let resized;
new ResizeObserver(() => {
	clearTimeout(resized);
	resized = setTimeout(() => plots.forEach((p) => p.chart && p.chart.setSize({ width: $(p.at).clientWidth, height: 180 })), 100);
}).observe(document.body);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
follow();
