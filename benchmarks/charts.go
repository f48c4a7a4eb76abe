package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// drawing is one of the charts: the part with its figures, and its panels.
type drawing struct {
	file, part, title string
	panels            []panelOf
}

type panelOf struct {
	title  string
	store  store
	metric metric
	lines  []string // the entries that are drawn; nil for the designs
	things string   // draw only contests of these things, such as "callers"; empty for all
	// If not nil, the entries stand side by side under these names, and each contest is a line.
	xs    []string
	xName string
	// If not nil, these figures of the contest with this scene stand side by side, and each entry
	// is a line.
	metrics []metric
	scene   string
}

var drawings = []drawing{
	{"throughput.svg", "throughput", "Locks and unlocks a second, each caller with a name of its own", []panelOf{
		{title: "nodes in memory, pairs/s", store: inMemory, metric: pairs}, {title: "durable nodes, pairs/s", store: durable, metric: pairs}}},
	{"latency.svg", "throughput", "How long lock and unlock take, each caller with a name of its own", []panelOf{
		{title: "in memory, p50, ms", store: inMemory, metric: p50}, {title: "in memory, p99, ms", store: inMemory, metric: p99}}},
	{"contention.svg", "contention", "One lock, many contenders, each holds it for 1 ms", []panelOf{
		{title: "in memory, wait p99, ms", store: inMemory, metric: p99}, {title: "in memory, handoffs/s", store: inMemory, metric: handoffs}}},
	{"mixed.svg", "mixed", "Java (Redisson) and Go at one lock", []panelOf{
		{title: "longest wait of a Java client, ms", store: inMemory, metric: javaWorst, lines: []string{"12 Java", "6 Java + 6 Go"}, things: "held, 1 node"},
		{title: "share of Go, % of the grants", store: inMemory, metric: goShare, lines: []string{"1 Java + 1 Go", "6 Java + 6 Go"}, things: "held, 1 node"}}},
	{"scale.svg", "scale", "What each of n costs, as n doubles", []panelOf{
		{title: "client, µs of a processor", store: inMemory, metric: clientCPU, xs: scaleParts, xName: "of the number in the table"},
		{title: "five servers, µs of a processor", store: inMemory, metric: serverCPU, xs: scaleParts, xName: "of the number in the table"}}},
	{"crowd.svg", "crowd", "Callers at once, each takes and releases a free lock of its own", []panelOf{
		{title: "pairs that did well, a second", store: inMemory, metric: pairs, lines: crowdLines, things: "callers"},
		{title: "wait p99, of those who were granted, ms", store: inMemory, metric: p99, lines: crowdLines, things: "callers"}}},
	{"stall.svg", "stall", "All nodes stand still; pairs/s before and after", []panelOf{stallPanel("3s stall"), stallPanel("8s stall"), stallPanel("20s stall")}},
}

// crowdLines are in the order of the designs' colours.
var crowdLines = []string{ours, redsyncName, setnxDelName, rueidisName}

func stallPanel(scene string) panelOf {
	return panelOf{title: scene + ", pairs/s", store: inMemory, lines: crowdLines,
		xs: []string{"before", "1", "2", "3", "4", "5", "6", "7", "8"}, xName: "seconds after the stall",
		metrics: append([]metric{before}, after...), scene: scene}
}

var scaleParts = []string{"1/8", "1/4", "1/2", "all"}

// drawCharts writes the charts of a part to a directory.
func drawCharts(dir, subtitle string, p part, contests []*contest) error {
	for _, d := range drawings {
		if d.part != p.name {
			continue
		}
		c := chart{title: d.title, subtitle: subtitle}
		for _, of := range d.panels {
			if one := of.panel(contests); len(one.lines) > 0 {
				c.panels = append(c.panels, one)
			}
		}
		if len(c.panels) == 0 {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, d.file), []byte(c.svg()), 0o644); err != nil {
			return fmt.Errorf("-charts: %w", err)
		}
	}
	return nil
}

// panel has a line for each entry that was measured, and a position for each contest of the store.
func (of panelOf) panel(contests []*contest) panel {
	p := panel{title: of.title, xs: of.xs, xName: of.xName}
	if of.metrics != nil {
		return of.perMetric(contests, p)
	}
	if of.xs != nil {
		for i, c := range contests {
			l := line{name: c.scene, colour: i}
			for _, e := range c.entries {
				l.ys = append(l.ys, median(c.rounds.of(e.name, of.metric)))
			}
			p.lines = append(p.lines, l)
		}
		return p
	}
	names := of.lines
	for _, d := range designs {
		if of.lines == nil {
			names = append(names, d.name)
		}
	}
	for i, name := range names {
		l := line{name: name, colour: i}
		measured := false
		for _, c := range contests {
			if _, things, _ := strings.Cut(c.scene, " "); c.store != of.store || of.things != "" && things != of.things {
				continue
			}
			y := median(c.rounds.of(name, of.metric))
			measured = measured || y > 0
			l.ys = append(l.ys, y)
			if number, things, ok := strings.Cut(c.scene, " "); ok && len(p.xs) < len(l.ys) {
				p.xs, p.xName = append(p.xs, number), things
			}
		}
		if measured {
			p.lines = append(p.lines, l)
		}
	}
	return p
}

// perMetric adds a line for each entry of one contest to a panel.
func (of panelOf) perMetric(contests []*contest, p panel) panel {
	for _, c := range contests {
		if c.store != of.store || c.scene != of.scene {
			continue
		}
		for i, name := range of.lines {
			l := line{name: name, colour: i}
			for _, m := range of.metrics {
				l.ys = append(l.ys, median(c.rounds.of(name, m)))
			}
			if slices.Max(l.ys) > 0 {
				p.lines = append(p.lines, l)
			}
		}
	}
	return p
}
