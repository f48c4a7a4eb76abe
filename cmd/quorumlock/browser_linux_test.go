package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	imagedraw "image/draw"
	"image/png"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/require"
)

// requireBrowser is the variable that makes it a failure if there is no browser.
const requireBrowser = "QUORUMLOCK_REQUIRE_BROWSER"

// shot is the variable with the file into which the test of the demo writes its screenshot.
const shot = "QUORUMLOCK_SCREENSHOT"

// needBrowser skips a test if there is no browser.
func needBrowser(t *testing.T) {
	t.Helper()
	if _, err := browserBinary(); err != nil {
		require.Skip(t, requireBrowser, err.Error())
	}
}

// The page in a real browser: it updates by itself, a frozen node turns red, all controls can be
// reached by the keyboard, and no request goes to another server.
func TestThePageInABrowser(t *testing.T) {
	t.Parallel()
	needBrowser(t)
	servers, nodes := startServers(t, 3)
	s := serveNodes(t, nodes, "--interval", "300ms", "--node-timeout", "300ms")
	evil := `<script>window.owned=1</script><img src=x onerror="window.owned=1">`
	grant(t, servers, evil, `"><script>window.owned=1</script>:1`)
	grant(t, servers, "\x1b[2J\u202eevil", "\u202e\x07:1")
	c := startChromium(t)
	run := func(name string, test func(t *testing.T)) {
		t.Run(name, func(own *testing.T) {
			c.t = own // failures belong to this test
			defer func() { c.t = t }()
			test(own)
		})
	}
	p := c.open(s.url+"/", 1100, 800, nil)
	p.shows(`document.readyState === "complete" && document.getElementById("status")?.textContent === "3 of 3 nodes ready, quorum 2, 1 more may fail"`)
	p.shows(`document.querySelectorAll("#locks tbody tr").length === 2`)

	run("updates by itself", func(t *testing.T) {
		p.eval(`document.getElementById("match").value = "half-typed"; document.querySelector("#timeline-text").open = true; window.loaded = "once"`)
		h := begin(t, nodes, "a-lock", "", time.Minute, "--label", "holder-1")
		p.shows(`[...document.querySelectorAll("#locks tbody tr")].some(r => r.innerText.includes("a-lock") && r.innerText.includes("holder-1"))`)
		p.shows(`[...document.querySelectorAll("svg.timeline title")].some(t => t.textContent.startsWith("a-lock: holder-1, "))`)
		if got := p.eval(`window.loaded + document.getElementById("match").value + document.querySelector("#timeline-text").open`); got != "oncehalf-typedtrue" {
			t.Errorf("the update loses what the user did: %q", got)
		}
		h.endBy(syscall.SIGINT, 130)
		p.shows(`![...document.querySelectorAll("#locks tbody tr")].some(r => r.innerText.includes("a-lock"))`)
		// in the past
		p.shows(`[...document.querySelectorAll("svg.timeline title")].some(t => t.textContent.startsWith("a-lock: holder-1, "))`)
	})
	run("names and labels are only text", func(t *testing.T) {
		if got := p.eval(`typeof window.owned + document.querySelectorAll("#locks script, #locks img, #timeline img").length`); got != "undefined0" {
			t.Errorf("markup of a name is interpreted: %s", got)
		}
		text := p.eval(`document.body.innerText`)
		has(t, text, shown(evil), shown(`"><script>window.owned=1</script>:1`), `"\x1b[2J\u202eevil"`, `"\u202e\a:1"`)
		if strings.ContainsAny(text, "\x1b\u202e\x07") {
			t.Errorf("control characters: %q", text)
		}
		noSecret(t, p.eval(`document.documentElement.outerHTML`))
	})
	run("by keyboard", func(t *testing.T) { reachesAllByKeyboard(t, p) })
	run("to a screen reader", func(t *testing.T) { hasNamesForAll(t, p) })
	run("a frozen node turns red", func(t *testing.T) {
		red := p.eval(`getComputedStyle(document.documentElement).getPropertyValue("--bad-back")`)
		background := `getComputedStyle([...document.querySelectorAll("#nodes tbody tr")].find(r => r.innerText.includes("` + servers[0].addr + `"))).backgroundColor`
		if before := p.eval(background); before != "rgba(0, 0, 0, 0)" {
			t.Errorf("it is %s before", before)
		}
		servers[0].freeze(t)
		p.shows(background + ` === "` + rgb(t, red) + `"`)
		p.shows(`document.getElementById("status").textContent === "2 of 3 nodes ready, quorum 2, 0 more may fail" && document.getElementById("status").className === "warn"`)
		servers[1].freeze(t)
		p.shows(`document.getElementById("status").textContent.endsWith("NO LOCK IS GRANTED") && document.getElementById("status").className === "bad"`)
		p.shows(`document.getElementById("survey-error") !== null`)
		p.shows(`document.querySelector("svg.timeline rect.blind") !== null`)
		servers[0].thaw()
		servers[1].thaw()
		p.shows(`document.getElementById("status").className === "good" && document.getElementById("survey-error") === null`)
		p.shows(`document.querySelectorAll("svg.timeline rect.failed").length >= 2`) // in the past
	})
	run("dark and light", func(t *testing.T) {
		var seen []string
		for _, scheme := range []string{"light", "dark"} {
			p.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
			seen = append(seen, p.eval(`getComputedStyle(document.body).backgroundColor + getComputedStyle(document.body).color`))
		}
		if seen[0] != "rgb(255, 255, 255)rgb(27, 31, 36)" || seen[1] != "rgb(13, 17, 23)rgb(230, 237, 243)" {
			t.Errorf("light and dark are %q", seen)
		}
	})
	run("fits a telephone", func(t *testing.T) {
		h := begin(t, nodes, "myapp:lock:invoice:1042", "", time.Minute, "--label", "billing-7c9f5d")
		waiter := beginWaiter(t, servers, nodes, "myapp:lock:invoice:1042", "--label", "waiting-8d1e")
		for _, width := range []int{360, 390} {
			p := c.open(s.url+"/?match=invoice", width, 844, nil)
			p.shows(`document.querySelectorAll("#locks tbody .first").length === 1`)
			if file := os.Getenv(shot); file != "" {
				p.screenshot(file + ".telephone.png")
			}
			p.eval(`window.seen = e => { const r = e.getBoundingClientRect(); return r.width > 0 && r.left >= 0 && r.right <= innerWidth + 1 }`)
			for _, expression := range []string{ // the page may be replaced between two looks
				`document.documentElement.scrollWidth <= innerWidth`,
				`seen(document.querySelector("#locks .queue")) && seen(document.querySelector("#locks .first")) && seen(document.querySelector("#locks .holder"))`,
				`seen([...document.querySelectorAll("svg .axis")].find(t => t.textContent === "now"))`,
				`[...document.querySelectorAll("svg .label")].every(seen)`,
				broken("#nodes, #locks") + ` === ""`,
				`document.querySelector("#locks tbody tr").innerText.replaceAll("\n", " ").includes("billing-7c9f5d")`,
			} {
				p.shows(expression)
			}
			p = c.open(s.url+"/lock?name=myapp:lock:invoice:1042", width, 844, nil)
			p.shows(`document.querySelectorAll("#lock #queue-scroll tbody tr").length === 1`)
			if got := p.eval(broken("#lock") + ` + (document.documentElement.scrollWidth <= innerWidth)`); got != "true" {
				t.Errorf("the page of a lock at %d pixels: %s", width, got)
			}
		}
		h.endBy(syscall.SIGINT, 130)
		waiter.end(0)
	})
	run("one lock", func(t *testing.T) {
		p := c.open(s.url+"/lock?name=%1b%5b2J%E2%80%AEevil", 1100, 800, nil)
		p.shows(`document.querySelectorAll("#lock tbody tr").length === 3`)
		p.shows(`document.querySelector("h1").textContent === '"\\x1b[2J\\u202eevil"'`)
	})
	quietAndAlone(t, c, s.url)

	run("without JavaScript", func(t *testing.T) {
		p := c.open(s.url+"/?match=evil", 1100, 800, func(p *tab) {
			p.call("Emulation.setScriptExecutionDisabled", map[string]any{"value": true}, nil)
		})
		p.shows(`document.querySelectorAll("#locks tbody tr").length === 1 && document.querySelector("svg.timeline") !== null`)
		p.shows(`document.getElementById("pause").hidden && document.body.innerText.includes("does not update itself")`)
	})
}

// broken is an expression for the words in a table that wrap. A long owner may.
func broken(parts string) string {
	return `[...document.querySelectorAll("` + parts + `")].flatMap(part => [...part.querySelectorAll("td, th")]).filter(c => c.className !== "owner").flatMap(cell => {
		const walk = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT), words = [];
		while (walk.nextNode()) for (const m of walk.currentNode.data.matchAll(/\S+/g)) {
			const range = document.createRange();
			range.setStart(walk.currentNode, m.index);
			range.setEnd(walk.currentNode, m.index + m[0].length);
			if (m[0].length < 40 && new Set([...range.getClientRects()].map(r => r.top)).size > 1) words.push(m[0]);
		}
		return words;
	}).join(" ")`
}

// rgb is a colour of a style sheet, as a browser computes it.
func rgb(t *testing.T, hex string) string {
	t.Helper()
	var r, g, b int
	if _, err := fmt.Sscanf(strings.TrimSpace(hex), "#%02x%02x%02x", &r, &g, &b); err != nil {
		t.Fatalf("%q: %v", hex, err)
	}
	return fmt.Sprintf("rgb(%d, %d, %d)", r, g, b)
}

// reachesAllByKeyboard presses the tab key until every control was reached, and uses some of them.
func reachesAllByKeyboard(t *testing.T, p *tab) {
	reached := make(map[string]bool)
	p.eval(`document.activeElement.blur(); window.getSelection().removeAllRanges()`)
	for range 40 {
		p.key("Tab", "")
		at := p.eval(`(e => e === document.body ? "" : e.id || e.className || e.textContent.slice(0, 20))(document.activeElement)`)
		if outline := p.eval(`getComputedStyle(document.activeElement).outlineStyle`); outline == "none" && at != "" {
			t.Errorf("nothing shows that the focus is on %q", at)
		}
		reached[at] = true
		if at == "pause" {
			p.key("Enter", "\r")
			p.shows(`document.getElementById("pause").getAttribute("aria-pressed") === "true"`)
			p.key(" ", " ")
			p.shows(`document.getElementById("pause").getAttribute("aria-pressed") === "false"`)
		}
	}
	for _, want := range []string{"skip", "pause", "timeline-scroll", "timeline-summary", "match", "Show", "locks-scroll", "Metrics", "check"} {
		if !reached[want] {
			t.Errorf("the tab key does not reach %q, but %v", want, reached)
		}
	}
	// The focus stays where it is while the page updates.
	p.eval(`document.querySelector("#locks tbody a").focus(); window.focused = document.activeElement`)
	p.shows(`!document.contains(window.focused)`) // replaced
	if at := p.eval(`document.activeElement.closest("#locks tbody") !== null`); at != "true" {
		t.Errorf("an update takes the focus away: it is on %s", p.eval(`document.activeElement.outerHTML.slice(0, 200)`))
	}
}

// hasNamesForAll checks the tree that screen readers use.
func hasNamesForAll(t *testing.T, p *tab) {
	type value struct{ Value any }
	var tree struct {
		Nodes []struct {
			Ignored    bool
			Role, Name value
		}
	}
	p.call("Accessibility.getFullAXTree", nil, &tree)
	count := make(map[string]int)
	for _, n := range tree.Nodes {
		role, _ := n.Role.Value.(string)
		name, _ := n.Name.Value.(string)
		if n.Ignored {
			continue
		}
		count[role]++
		switch role {
		case "button", "link", "textbox", "region", "heading", "image", "img", "RootWebArea":
			if strings.TrimSpace(name) == "" {
				t.Errorf("a %s has no name", role)
			}
		}
	}
	for _, role := range []string{"main", "heading", "table", "columnheader", "rowheader", "status", "search", "textbox"} {
		if count[role] == 0 {
			t.Errorf("there is no %s: %v", role, count)
		}
	}
	if count["image"]+count["img"] == 0 {
		t.Errorf("the timeline is no picture: %v", count)
	}
}

// quietAndAlone checks that the console has no error, and that no request went to another server.
func quietAndAlone(t *testing.T, c *chromium, url string) {
	t.Helper()
	for _, e := range c.heard("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded", "Network.loadingFailed") {
		t.Errorf("%s: %s", e.Method, e.Params)
	}
	requests := c.heard("Network.requestWillBeSent")
	if len(requests) < 3 { // the page, its style and its script
		t.Errorf("only %d requests were seen", len(requests))
	}
	for _, e := range requests {
		var r struct{ Request struct{ URL, Method string } }
		testkit.Must(t, json.Unmarshal(e.Params, &r), "a request")
		if !strings.HasPrefix(r.Request.URL, url+"/") || r.Request.Method != "GET" {
			t.Errorf("it asks for %s %s", r.Request.Method, r.Request.URL)
		}
	}
}

// The demo runs without a server. With QUORUMLOCK_SCREENSHOT=docs/serve.png it makes that picture.
func TestServeDemoInABrowser(t *testing.T) {
	t.Parallel()
	needBrowser(t)
	s := serveNodes(t, "", "--demo")
	c := startChromium(t)
	p := c.open(s.url+"/", 1100, 1040, nil)
	p.shows(`document.querySelectorAll("#locks tbody tr").length >= 3 && document.querySelectorAll("svg.timeline rect.bar").length >= 5`)
	p.shows(`document.querySelectorAll("#nodes tbody tr").length === 3`)
	if file := os.Getenv(shot); file != "" {
		p.shows(`document.querySelectorAll("svg.timeline rect.failed").length > 0`)
		p.shows(`document.querySelectorAll("svg.timeline rect.bar").length > 24`)
		p.shows(`document.querySelectorAll("svg.timeline rect.bar").length > 36 && document.getElementById("status").className === "good"`)
		p.screenshot(file)
	}
	quietAndAlone(t, c, s.url)
}

// screenshot writes a small picture of the page.
func (p *tab) screenshot(file string) {
	p.t.Helper()
	var taken struct{ Data []byte }
	p.call("Page.captureScreenshot", map[string]any{"format": "png"}, &taken)
	full, err := png.Decode(bytes.NewReader(taken.Data))
	testkit.Must(p.t, err, "decode the picture")
	// The 256 most frequent colours are enough.
	count := make(map[color.Color]int)
	for y := range full.Bounds().Dy() {
		for x := range full.Bounds().Dx() {
			count[full.At(x, y)]++
		}
	}
	palette := color.Palette(slices.SortedFunc(maps.Keys(count), func(a, b color.Color) int { return count[b] - count[a] }))
	palette = palette[:min(len(palette), 256)]
	small := image.NewPaletted(full.Bounds(), palette)
	imagedraw.Draw(small, full.Bounds(), full, image.Point{}, imagedraw.Src)
	var b bytes.Buffer
	testkit.Must(p.t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&b, small), "encode the picture")
	testkit.Must(p.t, os.WriteFile(file, b.Bytes(), 0o644), "write the picture")
}
