'use strict';
// Colours that people with any kind of colour vision tell apart (Okabe and Ito's), as in the pictures.
const PALETTE = [[0, 114, 178], [230, 159, 0], [0, 158, 115], [204, 121, 167], [86, 180, 233], [213, 94, 0],
	[240, 228, 66], [140, 140, 140]];
const data = JSON.parse(document.getElementById('data').textContent);
const page = document.getElementById('page');
const tip = document.getElementById('tip');
const themed = name => getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();
const redraws = [];

function element(name, parent, text) {
	const it = document.createElement(name);
	if (text !== undefined) it.textContent = text;
	parent.append(it);
	return it;
}

// All VMs of all timelines: one has one colour in all of them.
const names = [];
for (const timeline of data.timelines)
	for (const name of timeline.vms) if (!names.includes(name)) names.push(name);
const colorOfVm = name => PALETTE[names.indexOf(name) % PALETTE.length];

function unpack(timeline) {
	const text = atob(timeline.spans);
	let at = 0;
	const number = () => {
		let value = 0, factor = 1, byte;
		do {
			byte = text.charCodeAt(at++);
			value += (byte & 127) * factor;
			factor *= 128;
		} while (byte & 128);
		return value;
	};
	const rows = [];
	for (let pcpu = 0; pcpu < timeline.pcpus; pcpu++) {
		const count = number();
		const from = new Float64Array(count), to = new Float64Array(count), who = new Uint32Array(count);
		let last = 0;
		for (let place = 0; place < count; place++) {
			from[place] = last + number();
			to[place] = last = from[place] + number();
			who[place] = number();
		}
		rows.push({from, to, who});
	}
	return rows;
}

function colorsOf(timeline) {
	const vcpus = timeline.vms.map((_, vm) => Math.max(1, timeline.sums[vm].vcpus - 1));
	return timeline.people.map(person => {
		if (person.vm === null) return themed('host');
		const color = colorOfVm(timeline.vms[person.vm]);
		const pale = 0.55 * Math.min(person.vcpu || 0, vcpus[person.vm]) / vcpus[person.vm];
		return `rgb(${color.map(part => Math.round(part + pale * (255 - part))).join()})`;
	});
}

const duration = ns => ns < 1e3 ? ns.toFixed(0) + ' ns' : ns < 1e6 ? (ns / 1e3).toFixed(1) + ' us' :
	ns < 1e9 ? (ns / 1e6).toFixed(3) + ' ms' : (ns / 1e9).toFixed(3) + ' s';

// Powers of two of a us, about.
const rough = us => us < 1024 ? us + ' us' : us < 2 ** 20 ? Math.round(us / 1024) + ' ms' : Math.round(us / 2 ** 20) + ' s';

// A canvas as wide as the page, sharp on any screen.
function prepare(canvas, height) {
	const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth;
	canvas.style.height = height + 'px';
	canvas.width = width * ratio;
	canvas.height = height * ratio;
	const pen = canvas.getContext('2d');
	pen.scale(ratio, ratio);
	pen.font = '12px system-ui, sans-serif';
	return {pen, width};
}

const LEFT = 62;

function axis(pen, width, height, from, to) {
	const about = (to - from) / 8, power = 10 ** Math.floor(Math.log10(about));
	const step = power * [1, 2, 5, 10].find(times => times * power >= about);
	pen.fillStyle = themed('faint');
	pen.strokeStyle = themed('line');
	pen.textAlign = 'center';
	for (let at = Math.ceil(from / step) * step; at <= to; at += step) {
		const x = LEFT + (at - from) / (to - from) * (width - LEFT);
		pen.beginPath();
		pen.moveTo(x, height);
		pen.lineTo(x, height + 5);
		pen.stroke();
		const [unit, of] = step >= 1e8 ? ['s', 1e9] : ['ms', 1e6];
		const digits = Math.max(0, -Math.floor(Math.log10(step / of)));
		pen.fillText((at / of).toFixed(Math.min(6, digits)) + ' ' + unit, Math.min(x, width - 30), height + 17);
	}
}

// The first of a row that ends after that moment.
function firstAfter(row, moment) {
	let low = 0, high = row.to.length;
	while (low < high) {
		const middle = (low + high) >> 1;
		if (row.to[middle] <= moment) low = middle + 1; else high = middle;
	}
	return low;
}

// Of what is narrower than a pixel, who ran longest in it is drawn.
function drawRow(pen, row, colors, view, width, y, height) {
	const scale = (width - LEFT) / (view.to - view.from);
	let pixel = -1, best = 0, color = '';
	for (let place = firstAfter(row, view.from); place < row.from.length; place++) {
		if (row.from[place] >= view.to) break;
		const from = Math.max(row.from[place], view.from), to = Math.min(row.to[place], view.to);
		const x = (from - view.from) * scale, wide = (to - from) * scale;
		if (wide < 1) {
			if (Math.floor(x) !== pixel) [pixel, best] = [Math.floor(x), 0];
			if (wide <= best) continue;
			best = wide;
		}
		if (color !== colors[row.who[place]]) pen.fillStyle = color = colors[row.who[place]];
		pen.fillRect(LEFT + (wide < 1 ? pixel : x), y, Math.max(wide, wide < 1 ? 1 : 0.5), height);
	}
}

function schedule(timeline, parent) {
	const rows = unpack(timeline), view = {from: 0, to: timeline.length_ns};
	const height = Math.min(30, Math.max(4, 320 / timeline.pcpus)), bottom = height * timeline.pcpus;
	const tools = element('div', parent);
	tools.className = 'tools';
	const canvas = element('canvas', parent);
	canvas.className = 'schedule';
	canvas.tabIndex = 0;
	canvas.setAttribute('role', 'img');
	canvas.setAttribute('aria-label', 'Who ran on which pCPU: ' + timeline.title);
	const draw = () => {
		const {pen, width} = prepare(canvas, bottom + 24), colors = colorsOf(timeline);
		for (let pcpu = 0; pcpu < timeline.pcpus; pcpu++) {
			const bar = height < 6 ? height : height - 2;
			pen.fillStyle = themed('idle');
			pen.fillRect(LEFT, pcpu * height, width - LEFT, bar);
			drawRow(pen, rows[pcpu], colors, view, width, pcpu * height, bar);
			if (pcpu % Math.ceil(15 / height) === 0) {
				pen.fillStyle = themed('faint');
				pen.textAlign = 'right';
				pen.fillText('pCPU ' + pcpu, LEFT - 8, pcpu * height + bar / 2 + 4);
			}
		}
		axis(pen, width, bottom, view.from, view.to);
		canvas.dataset.view = `${Math.round(view.from)} ${Math.round(view.to)}`;
	};
	const show = (from, to) => {
		const wide = Math.min(timeline.length_ns, Math.max(1000, to - from));
		view.from = Math.min(Math.max(0, from), timeline.length_ns - wide);
		view.to = view.from + wide;
		requestAnimationFrame(draw);
	};
	const momentAt = x => view.from + (x - LEFT) / (canvas.clientWidth - LEFT) * (view.to - view.from);
	const zoom = (factor, moment) =>
		show(moment - (moment - view.from) * factor, moment + (view.to - moment) * factor);
	const middle = () => (view.from + view.to) / 2;
	const tool = (text, label, act) => {
		const button = element('button', tools, text);
		button.setAttribute('aria-label', label);
		button.onclick = act;
	};
	tool('+', 'Zoom in', () => zoom(0.5, middle()));
	tool('\u2212', 'Zoom out', () => zoom(2, middle()));
	tool('All', 'Show all', () => show(0, timeline.length_ns));
	interact(canvas, {zoom, show, view, momentAt, middle});
	hover(canvas, timeline, rows, height, momentAt);
	redraws.push(draw);
}

function interact(canvas, {zoom, show, view, momentAt, middle}) {
	canvas.addEventListener('wheel', event => {
		event.preventDefault();
		zoom(event.deltaY < 0 ? 0.8 : 1.25, momentAt(event.offsetX));
	}, {passive: false});
	canvas.onpointerdown = event => canvas.setPointerCapture(event.pointerId);
	canvas.addEventListener('pointermove', event => {
		if (!event.buttons) return;
		const moved = event.movementX / (canvas.clientWidth - LEFT) * (view.to - view.from);
		show(view.from - moved, view.to - moved);
	});
	canvas.onkeydown = event => {
		const fifth = (view.to - view.from) / 5;
		const keys = {
			'+': () => zoom(0.5, middle()), '-': () => zoom(2, middle()),
			ArrowLeft: () => show(view.from - fifth, view.to - fifth),
			ArrowRight: () => show(view.from + fifth, view.to + fifth),
		};
		if (!keys[event.key]) return;
		event.preventDefault();
		keys[event.key]();
	};
}

function hover(canvas, timeline, rows, height, momentAt) {
	canvas.addEventListener('pointermove', event => {
		const row = rows[Math.floor(event.offsetY / height)], moment = momentAt(event.offsetX);
		if (!row || event.offsetX < LEFT) return void (tip.hidden = true);
		const place = firstAfter(row, moment), ran = place < row.from.length && row.from[place] <= moment;
		const who = ran ? timeline.people[row.who[place]].name : 'idle';
		const long = ran ? ', ran ' + duration(row.to[place] - row.from[place]) : '';
		tip.textContent = `${who} on pCPU ${Math.floor(event.offsetY / height)}${long}, at ${duration(moment)}`;
		tip.style.left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8) + 'px';
		tip.style.top = event.clientY + 14 + 'px';
		tip.hidden = false;
	});
	canvas.onpointerleave = () => tip.hidden = true;
}

function bars(timeline, parent) {
	element('h3', parent, 'Running (green), ready (orange) and waiting, VM by VM');
	timeline.vms.forEach((name, vm) => {
		element('p', parent, name);
		const canvas = element('canvas', parent);
		redraws.push(() => {
			const {pen, width} = prepare(canvas, 36), all = timeline.bars[vm], wide = (width - LEFT) / all.length;
			pen.fillStyle = themed('wait');
			pen.fillRect(LEFT, 0, width - LEFT, 36);
			all.forEach(([run, ready], place) => {
				// Whole pixels: no seams between bars.
				const x = Math.round(LEFT + place * wide), to = Math.round(LEFT + (place + 1) * wide);
				pen.fillStyle = themed('run');
				pen.fillRect(x, 36 * (1 - run), to - x, 36 * run);
				pen.fillStyle = themed('ready');
				pen.fillRect(x, 36 * (1 - run - ready), to - x, 36 * ready);
			});
		});
	});
}

function waits(timeline, parent) {
	element('h3', parent, 'How many waits, by their length');
	timeline.vms.forEach((name, vm) => {
		const all = timeline.waits[vm], most = Math.max(...all);
		if (most === 0) return void element('p', parent, `${name}: no waits`);
		element('p', parent, `${name}: ${all.reduce((sum, one) => sum + one, 0)} waits; the highest bar: ${most}`);
		const canvas = element('canvas', parent);
		redraws.push(() => {
			const {pen, width} = prepare(canvas, 70), wide = (width - LEFT) / all.length;
			all.forEach((count, place) => {
				const high = count ? Math.max(1, 50 * count / most) : 0;
				pen.fillStyle = themed('ready');
				pen.fillRect(LEFT + place * wide + 1, 50 - high, wide - 2, high);
				pen.fillStyle = themed('faint');
				pen.textAlign = 'left';
				if (place % 3 === 1) pen.fillText(rough(2 ** (place - 1)), LEFT + place * wide, 64);
			});
		});
	});
}

// All side by side.
function compare(parent) {
	const wide = element('div', parent);
	wide.className = 'wide';
	const table = element('table', wide), head = element('tr', element('thead', table));
	const body = element('tbody', table);
	for (const what of ['VM', 'run', 'ran', 'ready', 'longest wait']) element('th', head, what);
	for (const name of names) {
		for (const timeline of data.timelines.filter(one => one.vms.includes(name))) {
			const row = element('tr', body), sum = timeline.sums[timeline.vms.indexOf(name)];
			element('td', row, name);
			element('td', row, timeline.title);
			element('td', row, sum.run_pct.toFixed(2) + ' %');
			element('td', row, sum.ready_pct.toFixed(2) + ' %');
			element('td', row, sum.longest_ms.toFixed(2) + ' ms');
		}
	}
}

function legend(parent) {
	const all = element('div', parent);
	all.className = 'legend';
	const entry = (name, color) => {
		const one = element('span', all), swatch = element('i', one);
		redraws.push(() => swatch.style.background = color());
		one.append(name);
	};
	for (const name of names) entry(name, () => `rgb(${colorOfVm(name).join()})`);
	entry("the host's own tasks", () => themed('host'));
	entry('idle', () => themed('idle'));
}

// A section for each timeline, two in a row where there is room.
function eachOf(fill) {
	const all = element('div', page);
	all.className = 'runs';
	for (const timeline of data.timelines) {
		const one = element('section', all);
		element('h2', one, timeline.title);
		fill(timeline, one);
	}
}

element('h1', page, data.title);
for (const line of data.about) element('p', page, line);
legend(page);
element('p', page, 'The wheel zooms, dragging moves; so do + \u2212 and the arrow keys.');
eachOf((timeline, parent) => {
	for (const note of timeline.notes) element('p', parent, note);
	schedule(timeline, parent);
});
if (names.length) {
	element('h2', page, 'Side by side');
	element('p', page, '% of one pCPU, summed over vCPUs');
	compare(page);
}
eachOf((timeline, parent) => {
	bars(timeline, parent);
	waits(timeline, parent);
});
if (data.tables) {
	element('h2', page, 'Figures');
	element('pre', page, data.tables);
}
const redraw = () => redraws.forEach(one => one());
redraw();
addEventListener('resize', redraw);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
