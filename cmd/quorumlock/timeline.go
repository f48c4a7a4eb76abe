package main

import (
	"fmt"
	"hash/fnv"
	"slices"
	"time"
)

// The dimensions of the timeline, in the units of its SVG.
const (
	timelineWidth  = 1000
	timelineLabels = 240 // the column of the names
	laneHeight     = 16
	rowGap         = 6
	axisHeight     = 22
	maxRows        = 20
	maxLanes       = 3  // holds of one lock that are drawn next to each other
	minStep        = 8. // between the beginnings of two bars of a lane: bounds their number
	maxText        = 500
	colours        = 8  // in style.css
	charWidth      = 7. // of the labels, at most
)

// timeline is a picture of holders over time, for a template, and the same data as a table.
type timeline struct {
	Width, Height int
	Labels, Right int
	Rows          []timelineRow
	Bars          []timelineBar
	Blind         []timelineBar // times in which the holders were unknown
	Ticks         []timelineTick
	Text          []timelineText // the latest spans as text, for readers who cannot see the bars
	TextLeft      int            // spans that are not in Text
	Left          int            // rows that are not drawn
	Minutes       string
}

type timelineRow struct {
	Name string
	Node bool
	X, Y int // of the label
	Line int // below the row
}

type timelineBar struct {
	X, Y, W, H float64
	Class      string
	Label      string // as much of it as fits
	Title      string
	TextX      float64
	TextY      float64
}

type timelineTick struct {
	X      float64
	Y      int
	Label  string
	Anchor string
}

type timelineText struct {
	Name, Who, From, To, Lasted string

	from time.Time
}

// draw makes a picture of the tracks. Nodes with failures come first.
func draw(nodes, locks []track, blind track, left int, now time.Time, keep time.Duration) timeline {
	p := timeline{Width: timelineWidth, Labels: timelineLabels, Right: timelineWidth, Left: left, Minutes: minutes(keep)}
	y := axisHeight
	add := func(t track, node bool) {
		lanes, of := arrange(t.spans)
		inLane := make([][]span, min(lanes, maxLanes))
		for i, s := range t.spans {
			if lane := of[i]; lane < maxLanes {
				inLane[lane] = append(inLane[lane], s)
				p.Text = append(p.Text, inWords(t.name, s, node, now))
			}
		}
		for i, spans := range inLane {
			for _, near := range together(spans, now, keep) {
				p.bar(t.name, near, node, float64(y+i*laneHeight), now, keep)
			}
		}
		height := max(min(lanes, maxLanes), 1) * laneHeight
		p.Rows = append(p.Rows, timelineRow{clip(shown(t.name), timelineLabels-12), node, 0, y + laneHeight - 4, y + height + rowGap/2})
		y += height + rowGap
	}
	for _, t := range nodes {
		if len(t.spans) > 0 {
			add(t, true)
		}
	}
	top := y
	for _, t := range locks {
		add(t, false)
	}
	p.Height = y
	for _, near := range together(blind.spans, now, keep) {
		from, to := across(near, now, keep)
		p.Blind = append(p.Blind, timelineBar{X: from, Y: float64(top), W: max(to-from, 1), H: float64(max(y-top, 0)), Class: "blind", Title: "not known: too few nodes answered"})
	}
	slices.SortStableFunc(p.Text, func(a, b timelineText) int { return b.from.Compare(a.from) })
	p.TextLeft = max(len(p.Text)-maxText, 0)
	p.Text = p.Text[:len(p.Text)-p.TextLeft]
	p.Ticks = ticks(keep, y)
	return p
}

// steps are the possible distances between the marks of the axis. The first one that makes at most
// six marks is used. The last one is enough for 24 hours, the longest timeline.
var steps = []time.Duration{time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 6 * time.Hour}

// ticks returns the marks of the axis, from now back to the beginning.
func ticks(keep time.Duration, y int) (all []timelineTick) {
	i := slices.IndexFunc(steps, func(d time.Duration) bool { return 6*d >= keep })
	for now, ago := time.Now(), time.Duration(0); ago <= keep; ago += steps[i] {
		t := timelineTick{place(now.Add(-ago), now, keep), y, "−" + minutes(ago), "middle"}
		switch {
		case ago == 0:
			t.Label, t.Anchor = "now", "end"
		case t.X < timelineLabels+3*charWidth: // the names cover what is further left
			t.Anchor = "start"
		}
		all = append(all, t)
	}
	return all
}

// together groups the spans of a lane into bars: a bar has the spans that begin within minStep of
// its beginning. An open span has a bar of its own.
func together(spans []span, now time.Time, keep time.Duration) (bars [][]span) {
	var begins float64
	for i, s := range spans {
		if x := place(s.from, now, keep); i == 0 || x >= begins+minStep || s.to.IsZero() {
			bars, begins = append(bars, nil), x
		}
		bars[len(bars)-1] = append(bars[len(bars)-1], s)
	}
	return bars
}

// bar draws neighbouring spans as one bar, in the form of the longest of them.
func (p *timeline) bar(name string, spans []span, node bool, y float64, now time.Time, keep time.Duration) {
	longest := spans[0]
	for _, s := range spans {
		if s.lasted(now) > longest.lasted(now) {
			longest = s
		}
	}
	from, to := across(spans, now, keep)
	b := timelineBar{X: from, Y: y, W: max(to-from, 2), H: laneHeight - 2, Class: colour(longest.who), TextX: from + 4, TextY: y + laneHeight - 5}
	if node {
		b.Class = "failed"
	}
	text := inWords(name, longest, node, now)
	b.Title = fmt.Sprintf("%s: %s, %s to %s (%s)", text.Name, text.Who, text.From, text.To, text.Lasted)
	if more := len(spans) - 1; more > 0 {
		b.Title += fmt.Sprintf(", and %d shorter", more)
	}
	if float64(len([]rune(text.Who)))*charWidth < b.W-8 {
		b.Label = text.Who
	}
	p.Bars = append(p.Bars, b)
}

// inWords describes a span of a lock or a node.
func inWords(name string, s span, node bool, now time.Time) timelineText {
	text := timelineText{Name: shown(name), Who: s.who, From: s.from.UTC().Format(time.TimeOnly), To: "now",
		Lasted: seconds(s.lasted(now)), from: s.from}
	if !s.to.IsZero() {
		text.To = s.to.UTC().Format(time.TimeOnly)
	}
	if node {
		text.Who = "not ready"
	}
	return text
}

func (s span) lasted(now time.Time) time.Duration {
	if s.to.IsZero() {
		return now.Sub(s.from)
	}
	return s.to.Sub(s.from)
}

// arrange puts overlapping spans into different lanes.
func arrange(spans []span) (lanes int, of []int) {
	of = make([]int, len(spans))
	var ends []time.Time // of the last span in each lane; zero for an open span
	for i, s := range spans {
		lane := 0
		for lane < len(ends) && (ends[lane].IsZero() || ends[lane].After(s.from)) {
			lane++
		}
		if lane == len(ends) {
			ends = append(ends, s.to)
		}
		ends[lane], of[i] = s.to, lane
	}
	return len(ends), of
}

// across returns the left and the right end of consecutive spans.
func across(spans []span, now time.Time, keep time.Duration) (from, to float64) {
	end := spans[len(spans)-1].to
	if end.IsZero() {
		end = now
	}
	return place(spans[0].from, now, keep), place(end, now, keep)
}

// place returns the position of a time, from left to right.
func place(t, now time.Time, keep time.Duration) float64 {
	part := 1 - float64(now.Sub(t))/float64(keep)
	x := timelineLabels + min(max(part, 0), 1)*(timelineWidth-timelineLabels)
	return float64(int(x*10)) / 10
}

// colour returns the colour of a holder, the same for all its spans.
func colour(who string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(who))
	return fmt.Sprintf("c%d", h.Sum32()%colours)
}

// clip shortens a label to a width.
func clip(s string, width float64) string {
	r := []rune(s)
	if most := int(width / charWidth); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}

func minutes(d time.Duration) string {
	if d%time.Minute == 0 {
		return fmt.Sprintf("%d min", int(d.Minutes()))
	}
	return fmt.Sprintf("%d s", int(d.Seconds()))
}
