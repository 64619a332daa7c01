// Drives the page in a real Chromium: `node page.mjs PART` with what lab_test.go puts into PAGE_TEST. Exits with 0 if the part holds.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { join } from "node:path";

const settings = JSON.parse(process.env.PAGE_TEST);
const { chromium } = createRequire(join(settings.driver, "node_modules/"))("playwright-core");
const within = 30000; // for what has no time of its own: a busy machine takes a part of it, a fault all of it
const long = process.env.ENVOY_RLS_LONG === "1";

const context = await chromium.launchPersistentContext(settings.profile, {
	executablePath: process.env.CHROMIUM || "/usr/bin/chromium",
	headless: true,
	args: [
		"--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
	],
	javaScriptEnabled: process.argv[2] !== "scriptless",
	viewport: { width: 1280, height: 900 },
	timezoneId: "UTC",
	reducedMotion: "reduce",
});
context.setDefaultTimeout(within);

// watch collects what must not happen: errors, violations of the policy on contents, requests to others, dialogs, scripts that came as values.
function watch(page) {
	const faults = [];
	page.on("pageerror", (e) => faults.push("error: " + e.message));
	page.on("console", (m) => ["error", "warning"].includes(m.type()) && faults.push("console: " + m.text()));
	page.on("dialog", (d) => { faults.push("dialog: " + d.message()); d.dismiss(); });
	page.on("request", (r) => new URL(r.url()).origin === new URL(page.url() === "about:blank" ? r.url() : page.url()).origin || faults.push("request to " + r.url()));
	return faults;
}

async function open(n = 0, options = {}) {
	const page = await context.newPage();
	if (options.dark) await page.emulateMedia({ colorScheme: "dark" });
	if (options.width) await page.setViewportSize({ width: options.width, height: 900 });
	const faults = watch(page);
	await page.goto(settings.pages[n]);
	await page.waitForFunction(() => document.getElementById("connection").textContent.startsWith("live"));
	return { page, faults };
}

async function control(path, body) {
	const answer = await fetch(settings.control + path, { method: "POST", body: typeof body === "string" ? body : JSON.stringify(body) });
	assert.equal(answer.status, 200, await answer.clone().text());
	return path === "/call" ? answer.json() : undefined;
}

const free = (key) => [[["plan", "free"], ["api_key", key], ["tenant", "customer-" + key]]];
const call = (instance, times, entries, domain = "edge") => control("/call", { instance, times, domain, entries });
const row = (page, list, text) => page.locator(`article.keys:has(h3:text-is("api-free")) table:has(caption:text-is("${list}")) tr`, { hasText: text });

const parts = {
	// A key that is drained now is on the page within 2 s, by which the long form judges.
	async drained() {
		const { page, faults } = await open();
		const waits = [];
		for (const key of ["0000-40", "0000-41", "0000-42"]) {
			assert.equal(await row(page, "Denied", key.slice(-4)).count(), 0);
			const answer = await call(0, 30, free(key));
			assert.deepEqual(answer, { Allowed: 20, Denied: 10 });
			const since = Date.now();
			await row(page, "Denied", key.slice(-4)).waitFor();
			waits.push(Date.now() - since);
		}
		console.log(`drained keys were on the page after ${waits} ms`);
		if (long) assert.ok(Math.max(...waits) < 2000, `${waits} ms`);
		assert.match(await row(page, "Denied", "0-42").innerText(), /tenant …0-42 apiKey …[0-9a-f]{4} #[0-9a-f]{6}\s+10/);
		const text = await page.content();
		for (const secret of ["0000-42", "customer"]) assert.ok(!text.includes(secret), secret + " is on the page");
		assert.ok((await page.locator("#plot-outcome canvas").count()) > 0, "a plot is drawn");
		assert.deepEqual(faults, []);
	},

	// Values that are scripts and tags are text.
	async hostile() {
		const { page, faults } = await open();
		await page.evaluate(() => { window.owned = false; });
		const evil = `<img src=x onerror="window.owned=true"><script>window.owned=true</script>'"&{{.}}`;
		await call(0, 30, [[["plan", "free"], ["api_key", evil], ["tenant", evil]]]);
		await call(0, 3, [[[evil, evil], ["plan", evil]]]);
		await call(0, 3, [[["x", "y"]]], evil);
		await control("/policies", settings_policies(`<img src=x onerror="owned=true">'"&{{.}}`));
		await page.locator("#policies th", { hasText: "<img" }).waitFor();
		await page.locator("#unmatched code", { hasText: "<img" }).first().waitFor();
		await page.locator("#unmatched td", { hasText: "no policy file serves this domain" }).waitFor();
		assert.equal(await page.evaluate(() => window.owned), false);
		assert.equal(await page.locator("main img, main script").count(), 0);
		assert.deepEqual(faults, []);
	},

	// A bucket that is empty on both instances is reset from the page: both admit, in the long form within a second. Blocked, it is denied by both until the
	// block ends.
	async changes() {
		const { page, faults } = await open();
		const key = "0000-42";
		await call(0, 30, free(key));
		assert.deepEqual(await call(1, 5, free(key)), { Allowed: 0, Denied: 5 }); // by what it remembers from now on
		const press = (name) => row(page, "Denied", "0-42").getByRole("button", { name }).click();
		const dialog = page.locator("#dialog"), result = page.locator("#result");

		await press("Reset");
		await dialog.getByRole("button", { name: "Reset" }).click();
		await result.filter({ hasText: "Refused: " }).waitFor();
		assert.equal((await call(0, 1, free(key))).Denied, 1, "nobody may without a token");
		await dialog.getByLabel("Token").fill("wrong-token-0123456789abcdef0123456789ab");
		await dialog.getByRole("button", { name: "Reset" }).click();
		await page.waitForFunction(() => !document.getElementById("do").disabled);
		assert.match(await result.innerText(), /^Refused: /);

		const waits = [];
		for (let i = 0; i < 3; i++) {
			await dialog.getByLabel("Token").fill(settings.token);
			await dialog.getByLabel("Reason").fill("ticket <b>4711</b>");
			await dialog.getByRole("button", { name: "Reset" }).click();
			await result.filter({ hasText: "Done, for all instances" }).waitFor();
			const since = Date.now();
			for (const n of [0, 1]) {
				while ((await call(n, 1, free(key))).Denied) assert.ok(Date.now() - since < within, `instance ${n} still denies`);
			}
			waits.push(Date.now() - since);
			await dialog.getByRole("button", { name: "Close" }).click();
			for (const n of [0, 1]) await call(n, 30, free(key));
			await press("Reset");
		}
		console.log(`after a reset both instances admitted after ${waits} ms`);
		if (long) assert.ok(Math.max(...waits) < 1000, `${waits} ms`);
		await dialog.getByRole("button", { name: "Close" }).click();
		await page.locator("#changes td", { hasText: "ticket <b>4711</b>" }).first().waitFor();

		await press("Block");
		await dialog.getByLabel("Reason").fill("scraping");
		await dialog.getByRole("button", { name: "Block" }).click();
		await result.filter({ hasText: "Done" }).waitFor();
		await dialog.getByRole("button", { name: "Close" }).click();
		await page.locator("#blocks td", { hasText: "scraping" }).waitFor();
		await page.locator("#blocks").getByRole("button", { name: "Unblock" }).click();
		await dialog.getByRole("button", { name: "Unblock" }).click();
		await result.filter({ hasText: "Done" }).waitFor();
		await dialog.getByRole("button", { name: "Close" }).click();
		await page.locator("#blocks").waitFor({ state: "detached" });

		await press("Refund");
		await dialog.getByLabel("Units").fill("3");
		await dialog.getByRole("button", { name: "Refund" }).click();
		await result.filter({ hasText: "Done" }).waitFor();
		assert.ok((await call(0, 5, free(key))).Allowed >= 3);
		assert.ok(!(await page.content()).includes(settings.token), "the token stands in the page");
		assert.equal(await page.evaluate(() => sessionStorage.length + localStorage.length + document.cookie.length), 0);
		await page.locator("#instances tr", { hasText: "ready" }).nth(1).waitFor(); // both are known
		assert.deepEqual(faults.filter((f) => !/the server responded with a status of 40[13]/.test(f)), []);
	},

	// What is wrong stands at the top, and leaves again; a stopped service is told.
	async wrong() {
		const { page, faults } = await open();
		const sound = settings.policies;
		await page.getByText("Nothing is wrong that this instance knows of.").waitFor();
		await control("/policies", "policies: [{id: broken}]");
		await page.locator("#problems li.severe", { hasText: "The policies cannot be loaded" }).waitFor();
		// On a busy machine something else may be wrong as well.
		await page.waitForFunction(() => document.title.startsWith("(" + document.querySelectorAll("#problems li").length + ") "));
		await control("/policies", sound);
		await page.getByText("Nothing is wrong that this instance knows of.").waitFor();
		await control("/redis/pause", "");
		await call(0, 3, free("k-of-nobody-1"));
		await page.locator("#problems li.severe", { hasText: "The breaker of store node" }).waitFor();
		await page.locator("#problems li.severe", { hasText: "were made without the store" }).waitFor();
		await control("/redis/resume", "");
		await page.locator("#store td", { hasText: "closed" }).first().waitFor();
		assert.deepEqual(faults, []);
		await control("/stop", "");
		await page.locator("#connection.lost", { hasText: "connection lost; what you see is as of" }).waitFor();
	},

	// Without scripts the tables are there all the same.
	async scriptless() {
		await call(0, 30, free("0000-42"));
		const page = await context.newPage();
		await page.goto(settings.pages[0]);
		await page.locator("#policies th", { hasText: "api-free" }).waitFor();
		await row(page, "Denied", "0-42").waitFor();
		assert.match(await page.locator("#connection").innerText(), /^as of .* reload for news$/);
		assert.equal(await page.locator("#plots").isVisible(), false);
	},

	// Everything can be reached by keyboard, by screen reader and on a narrow screen.
	async reach() {
		await call(0, 30, free("0000-42"));
		const { page, faults } = await open();
		for (const table of await page.locator("#tables table").all()) {
			assert.equal(await table.locator("caption").count(), 1, "a table without a caption");
		}
		assert.equal(await page.locator("#tables th:not([scope])").count(), 0);
		assert.equal(await page.locator("h1").count(), 1);
		await page.keyboard.press("Tab");
		assert.equal(await page.evaluate(() => document.activeElement.className), "skip");
		// What has the focus keeps it while the tables change, and every plot goes on.
		await page.locator("#tables .scroll").first().focus();
		const length = () => page.evaluate(() => plots.map((p) => p.data[0].length));
		const before = await length();
		await page.waitForFunction((n) => plots.every((p) => p.data[0].length >= n), before[0] + 2);
		assert.equal(await page.evaluate(() => document.activeElement.className), "scroll");
		await page.setViewportSize({ width: 360, height: 700 });
		await page.waitForFunction(() => document.documentElement.scrollWidth <= 360); // no sideways scrolling
		assert.deepEqual(faults, []);
	},

	async screenshots() {
		const to = process.env.PAGE_SCREENSHOTS;
		await traffic(12);
		const light = await open();
		await traffic(20);
		await light.page.screenshot({ path: join(to, "page.png"), fullPage: true, clip: { x: 0, y: 0, width: 1280, height: 1900 } });
		const dark = await open(0, { dark: true });
		await control("/redis/pause", "");
		await traffic(6);
		await dark.page.screenshot({ path: join(to, "page-dark.png"), clip: { x: 0, y: 0, width: 1280, height: 820 } });
		await control("/redis/resume", "");
		const narrow = await open(0, { width: 390 });
		await traffic(4);
		await narrow.page.screenshot({ path: join(to, "page-narrow.png"), clip: { x: 0, y: 0, width: 390, height: 800 } });
		assert.deepEqual([...light.faults, ...dark.faults, ...narrow.faults], []);
	},
};

const settings_policies = (id) => settings.policies + `  - ${JSON.stringify({ id, key: ["tenant"], match: { tenant: "nobody" }, algorithm: "token-bucket", capacity: 1, refillPerDay: 1, onStoreFailure: "open" })}\n`;

// traffic makes some for a number of seconds.
async function traffic(seconds) {
	for (let i = 0; i < seconds * 4; i++) {
		for (let k = 0; k < 8; k++) await call(0, 1 + ((k * k) >> 1) + (i % 4), free("17" + (3000 + 13 * k) + k));
		await call(0, 4, [[["method", "POST"], ["path", "/auth/login"], ["remote_address", "203.0.113." + (i % 5)], ["username", "user" + (i % 3)]]]);
		await call(0, 3, [[["method", "GET"], ["path", "/v1/search"], ["tenant", "customer-" + (1000 + (i % 7))]]]);
		await call(0, 1, [[["plan", "gold"], ["client_id", "abc"]]]);
		await call(0, 1, [[["tenant_id", "acme"]]]);
		await new Promise((done) => setTimeout(done, 180));
	}
}

let code = 0;
try {
	await parts[process.argv[2]]();
} catch (e) {
	code = 1;
	console.error(e.stack);
} finally {
	await context.close();
}
process.exit(code);
