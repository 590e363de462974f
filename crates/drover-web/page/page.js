// SPDX-License-Identifier: GPL-2.0-only
// What VMs got, were owed and waited for, from the daemon's steps of time. A step that is over never changes, so
// only those that are new are asked for.
'use strict';

/* How far back, and how long steps are, s. */
const STEPS = { 600: 2, 3600: 12, 86400: 300 };
const FIGURES = ['ready', 'owed', 'got'];
const HEIGHT = 150;

const byId = (id) => document.getElementById(id);
const view = { range: 3600, sort: 'ready', filter: '' };
/* What is known: steps `first` to `end`, and of each VM a figure for each of them. */
let known = null;
let asked = 0;
let timer = 0;
let loads = 0;
const cards = new Map();

function color(name) {
	return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function percent(mcpu) {
	return mcpu == null ? '-' : `${(mcpu / 10).toFixed(mcpu < 1000 ? 1 : 0)} %`;
}

function newest(figures) {
	return figures.length ? figures[figures.length - 1] : null;
}

/* Takes an answer; whether what was known before does not go on with it, and all has to be asked for again. */
function take(told) {
	const begins = !known;
	if (!begins && (told.step_s !== known.step || Math.abs(told.begun_unix_s - known.begun) > 2 ||
			told.first_step > known.end || told.first_step + told.steps < known.end)) {
		return true;
	}
	if (begins) {
		known = { step: told.step_s, first: told.first_step, end: told.first_step, vms: new Map() };
	}
	known.begun = told.begun_unix_s;
	known.kept = told.kept_s;
	const end = told.first_step + told.steps;
	for (const vm of known.vms.values()) vm.isHere = false;
	for (const vm of told.vms) {
		const id = `${vm.pid} ${vm.name}`;
		const own = known.vms.get(id) || { id, name: vm.name, pid: vm.pid, ready: [], owed: [], got: [] };
		known.vms.set(id, own);
		own.isHere = vm.is_here;
		for (const figure of FIGURES) {
			const values = vm[`${figure}_mcpu`];
			for (let step = known.first + own[figure].length; step < end; step++) {
				const value = values[step - vm.first_step];
				own[figure].push(value === undefined ? null : value);
			}
		}
	}
	forget(end);
	return false;
}

/* Has all VMs up to that step, without what is older than the range. */
function forget(end) {
	const first = Math.max(known.first, end - Math.floor(view.range / known.step));
	for (const vm of known.vms.values()) {
		for (const figure of FIGURES) {
			while (vm[figure].length < end - known.first) vm[figure].push(null);
			vm[figure].splice(0, first - known.first);
		}
		if (!vm.isHere && vm.got.every((value) => value === null)) known.vms.delete(vm.id);
	}
	known.first = first;
	known.end = end;
	known.times = Array.from({ length: end - first }, (_, at) => known.begun + (first + at + 1) * known.step);
}

async function load() {
	clearTimeout(timer);
	const mine = ++loads;
	const step = known ? known.step : STEPS[view.range];
	const since = Math.ceil((performance.now() - asked) / 1000);
	const seconds = known ? Math.min(view.range, since + 2 * step) : view.range;
	try {
		const begun = performance.now();
		const response = await fetch(`history?seconds=${seconds}&step=${step}`);
		const told = response.ok ? await response.json() : null;
		if (mine !== loads) return;
		if (!told) throw new Error(await response.text());
		asked = begun;
		if (take(told)) {
			known = null;
			return reload();
		}
		say();
		draw();
	} catch (error) {
		if (mine !== loads) return;
		const reason = error instanceof TypeError ? '`drover web` has ended' : error.message;
		byId('state').textContent = `No new figures: ${reason}`;
		byId('state').className = 'fault';
	}
	// A page that nobody sees asks for nothing.
	if (!document.hidden) timer = setTimeout(load, 1000 * Math.max(2, step));
}

function reload() {
	known = null;
	load();
}

function span(seconds) {
	const units = [[86400, 'day'], [3600, 'hour'], [60, 'minute'], [1, 'second']];
	const [size, unit] = units.find(([size]) => seconds >= size) || units[3];
	const count = Math.floor(seconds / size);
	return `${count} ${unit}${count === 1 ? '' : 's'}`;
}

function say() {
	const here = [...known.vms.values()].filter((vm) => vm.isHere).length;
	const gone = known.vms.size - here;
	const kept = known.kept < view.range ? `; kept for ${span(known.kept)} so far` : '';
	byId('state').textContent = `${here} VM${here === 1 ? '' : 's'}${gone ? `, ${gone} that have gone` : ''}; ` +
		`means over ${span(known.step)}${kept}`;
	byId('state').className = '';
}

/* The VMs that are shown, in their order. */
function shown() {
	const filter = view.filter.toLowerCase();
	const vms = [...known.vms.values()].filter((vm) => vm.name.toLowerCase().includes(filter));
	const mean = (vm) => {
		const values = vm.ready.filter((value) => value !== null);
		return values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : 0;
	};
	const ready = new Map(vms.map((vm) => [vm.id, view.sort === 'ready' ? mean(vm) : 0]));
	return vms.sort((a, b) => b.isHere - a.isHere || ready.get(b.id) - ready.get(a.id) ||
		a.name.localeCompare(b.name, undefined, { numeric: true }) || a.pid - b.pid);
}

function draw() {
	const vms = shown();
	const parent = byId('vms');
	const ids = new Set(vms.map((vm) => vm.id));
	for (const [id, card] of cards) {
		if (ids.has(id)) continue;
		seen.unobserve(card.element);
		if (card.plot) card.plot.destroy();
		card.element.remove();
		cards.delete(id);
	}
	vms.forEach((vm, at) => {
		const card = cards.get(vm.id) || newCard(vm);
		if (parent.children[at] !== card.element) parent.insertBefore(card.element, parent.children[at] || null);
		fill(card, vm);
	});
}

function element(kind, className, parent) {
	const made = document.createElement(kind);
	made.className = className;
	parent.append(made);
	return made;
}

/* Charts are drawn where somebody sees them. */
const seen = new IntersectionObserver((entries) => {
	for (const { target, isIntersecting } of entries) {
		const card = cards.get(target.dataset.vm);
		if (!card) continue;
		card.isSeen = isIntersecting;
		if (isIntersecting && known && known.vms.has(card.id)) plot(card, known.vms.get(card.id));
	}
}, { rootMargin: '200px' });

function newCard(vm) {
	const article = document.createElement('article');
	article.dataset.vm = vm.id;
	const header = element('header', '', article);
	const title = element('h2', '', header);
	title.textContent = vm.name;
	const small = element('small', '', title);
	const figures = element('span', 'figures', header);
	const values = FIGURES.concat('most').map((figure) => {
		figures.append(`${figure === 'most' ? 'most READY' : figure.toUpperCase()} `);
		return element('b', '', figures);
	});
	const chart = element('div', 'chart', article);
	chart.setAttribute('role', 'img');
	const card = { id: vm.id, element: article, small, values, chart, plot: null, isSeen: false };
	cards.set(vm.id, card);
	seen.observe(article);
	return card;
}

function fill(card, vm) {
	card.element.className = vm.isHere ? '' : 'gone';
	card.small.textContent = ` ${vm.isHere ? '' : 'has gone, '}process ${vm.pid}`;
	tell(card, vm, null);
	card.chart.setAttribute('aria-label', `${vm.name}: ${card.values.map((value, at) =>
		`${['READY', 'OWED', 'GOT', 'most READY'][at]} ${value.textContent}`).join(', ')}`);
	if (card.isSeen) plot(card, vm);
}

/* The figures of one step; those of the last. */
function tell(card, vm, at) {
	const most = vm.ready.reduce((most, value) => Math.max(most, value || 0), 0);
	const now = FIGURES.map((figure) => at == null ? newest(vm[figure]) : vm[figure][at]);
	[...now, most].forEach((value, at) => { card.values[at].textContent = percent(value); });
}

const sync = uPlot.sync('vms');

function options(card, width) {
	const line = (name, more) => ({ stroke: () => color(name), width: 1.5, points: { show: false }, ...more });
	const axis = (more) => ({
		stroke: () => color('faint'), grid: { stroke: () => color('line'), width: 1 },
		ticks: { show: false }, font: '12px system-ui, sans-serif', ...more,
	});
	const two = (number) => String(number).padStart(2, '0');
	const clock = (time) => {
		const at = new Date(1000 * time);
		return `${two(at.getHours())}:${two(at.getMinutes())}${view.range <= 600 && at.getSeconds() ? `:${two(at.getSeconds())}` : ''}`;
	};
	return {
		width, height: HEIGHT, padding: [10, 14, 0, 0], legend: { show: false },
		cursor: { sync: { key: sync.key }, drag: { x: false, y: false }, points: { size: 6 } },
		scales: { y: { range: (_, __, most) => [0, Math.max(1000, most || 0) * 1.05] } },
		axes: [
			axis({ space: 70, size: 24, gap: 4, values: (_, times) => times.map(clock) }),
			axis({ space: 34, size: 52, gap: 6, values: (_, values) => values.map((value) => `${value / 10} %`) }),
		],
		series: [{}, line('got', { fill: () => color('fill') }), line('owed', { dash: [5, 4] }), line('ready', { width: 2 })],
		hooks: {
			setCursor: [(plot) => {
				const vm = known && known.vms.get(card.id);
				if (vm) tell(card, vm, plot.cursor.idx);
			}],
		},
	};
}

function plot(card, vm) {
	const data = [known.times, vm.got, vm.owed, vm.ready];
	if (card.plot) {
		card.plot.setData(data);
	} else {
		card.plot = new uPlot(options(card, card.chart.clientWidth), data, card.chart);
	}
}

function again() {
	for (const card of cards.values()) {
		if (!card.plot) continue;
		card.plot.setSize({ width: card.chart.clientWidth, height: HEIGHT });
		card.plot.redraw(false, true);
	}
}

function press(group, pressed) {
	document.querySelectorAll(`button[data-${group}]`).forEach((button) => {
		button.setAttribute('aria-pressed', String(button.dataset[group] === String(pressed)));
	});
	view[group] = pressed;
}

document.querySelectorAll('button[data-range]').forEach((button) => button.addEventListener('click', () => {
	press('range', Number(button.dataset.range));
	reload();
}));
document.querySelectorAll('button[data-sort]').forEach((button) => button.addEventListener('click', () => {
	press('sort', button.dataset.sort);
	if (known) draw();
}));
byId('filter').addEventListener('input', () => {
	view.filter = byId('filter').value;
	if (known) draw();
});
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', again);
document.addEventListener('visibilitychange', () => { if (!document.hidden) load(); });
addEventListener('resize', again);
load();
