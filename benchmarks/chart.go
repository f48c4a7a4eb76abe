package main

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// chart is a picture of several panels side by side, which share their lines' names and colours.
type chart struct {
	title    string
	subtitle string
	panels   []panel
}

// panel has one value for each position on its x axis. Its y axis is logarithmic: the designs
// differ by orders of magnitude.
type panel struct {
	title string
	xName string
	xs    []string
	lines []line
}

type line struct {
	name   string
	colour int       // of colours
	ys     []float64 // 0 or less: nothing to draw there
}

// These colours differ for the colour-blind, and in print (Okabe and Ito, 2008).
var colours = []string{"#0072b2", "#d55e00", "#7f7f7f", "#009e73", "#cc79a7", "#b58900", "#56b4e9"}

const (
	panelWidth, panelHeight = 400, 300
	marginLeft, marginTop   = 64, 100
	marginRight             = 144 // the names of the last panel's lines reach into it
	gap                     = 200
	footer                  = 56
)

// svg draws the chart. It brings its own background, and so reads on a dark page too.
func (c chart) svg() string {
	width := marginLeft + len(c.panels)*(panelWidth+gap) - gap + marginRight
	height := marginTop + panelHeight + footer
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="system-ui, sans-serif" font-size="13" role="img" aria-label="%s">`+"\n",
		width, height, width, height, html.EscapeString(c.title))
	fmt.Fprintf(&b, `<rect width="%d" height="%d" rx="6" fill="#ffffff"/>`+"\n", width, height)
	text(&b, 24, 32, "start", "#1b1f24", `font-size="18" font-weight="600"`, c.title)
	text(&b, 24, 54, "start", "#57606a", "", c.subtitle)
	for i, p := range c.panels {
		p.draw(&b, marginLeft+i*(panelWidth+gap), marginTop)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func (p panel) draw(b *strings.Builder, left, top int) {
	low, high := p.decades()
	x := func(i int) float64 {
		return float64(left) + (float64(i)+0.5)*panelWidth/float64(len(p.xs))
	}
	y := func(v float64) float64 {
		share := (math.Log10(v) - float64(low)) / float64(high-low)
		return float64(top) + panelHeight*(1-share)
	}
	text(b, float64(left), float64(top-14), "start", "#1b1f24", `font-weight="600"`, p.title)
	for d := low; d <= high; d++ {
		at := y(math.Pow10(d))
		fmt.Fprintf(b, `<path d="M%d %.1fh%d" stroke="#d8dee4"/>`+"\n", left, at, panelWidth)
		text(b, float64(left-8), at+4, "end", "#57606a", "", decade(d))
	}
	for i, name := range p.xs {
		text(b, x(i), float64(top+panelHeight+20), "middle", "#57606a", "", name)
	}
	text(b, float64(left)+panelWidth/2, float64(top+panelHeight+42), "middle", "#57606a", "", p.xName)
	for _, l := range p.lines {
		l.draw(b, colours[l.colour%len(colours)], x, y)
	}
	p.names(b, x(len(p.xs)-1)+10, y)
}

// draw is a line through the values, each of which is marked and can be read by pointing at it.
func (l line) draw(b *strings.Builder, colour string, x func(int) float64, y func(float64) float64) {
	var path strings.Builder
	verb := "M"
	for i, v := range l.ys {
		if v <= 0 {
			verb = "M"
			continue
		}
		fmt.Fprintf(&path, "%s%.1f %.1f", verb, x(i), y(v))
		verb = "L"
	}
	fmt.Fprintf(b, `<path d="%s" fill="none" stroke="%s" stroke-width="2.5" stroke-linejoin="round"/>`+"\n", path.String(), colour)
	for i, v := range l.ys {
		if v > 0 {
			fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="4" fill="%s"><title>%s: %s</title></circle>`+"\n",
				x(i), y(v), colour, html.EscapeString(l.name), number("", v))
		}
	}
}

// names writes the lines' names where they end, apart from each other.
func (p panel) names(b *strings.Builder, x float64, y func(float64) float64) {
	const apart = 17
	at := make([]float64, len(p.lines))
	taken := make([]bool, len(p.lines))
	previous := math.Inf(-1)
	for range p.lines { // from the top down
		next := -1
		for i, l := range p.lines {
			v := l.last()
			if taken[i] || v <= 0 {
				continue
			}
			if next < 0 || v > p.lines[next].last() {
				next = i
			}
		}
		if next < 0 {
			break
		}
		taken[next] = true
		at[next] = max(y(p.lines[next].last()), previous+apart)
		previous = at[next]
		text(b, x, at[next]+4, "start", colours[p.lines[next].colour%len(colours)], `font-weight="600" font-size="12"`, p.lines[next].name)
	}
}

func (l line) last() float64 {
	if len(l.ys) == 0 {
		return 0
	}
	return l.ys[len(l.ys)-1]
}

// decades returns the powers of ten between which all values lie.
func (p panel) decades() (low, high int) {
	smallest, largest := math.Inf(1), math.Inf(-1)
	for _, l := range p.lines {
		for _, v := range l.ys {
			if v > 0 {
				smallest, largest = min(smallest, v), max(largest, v)
			}
		}
	}
	if smallest > largest {
		return 0, 1
	}
	low, high = int(math.Floor(math.Log10(smallest))), int(math.Ceil(math.Log10(largest)))
	return low, max(high, low+1)
}

func decade(d int) string {
	if d >= 0 && d <= 6 {
		return fmt.Sprintf("%.0f", math.Pow10(d))
	}
	return fmt.Sprintf("%g", math.Pow10(d))
}

func text(b *strings.Builder, x, y float64, anchor, colour, style, s string) {
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="%s" fill="%s" %s>%s</text>`+"\n", x, y, anchor, colour, style, html.EscapeString(s))
}
