package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// drawing is one of the charts: where its figures come from, and what its panels show.
type drawing struct {
	file, part, title string
	panels            []panelOf
}

type panelOf struct {
	title  string
	store  store
	metric metric
}

var drawings = []drawing{
	{"throughput.svg", "throughput", "Locks and unlocks a second, each caller with a name of its own", []panelOf{
		{"nodes in memory, pairs/s", inMemory, pairs}, {"durable nodes, pairs/s", durable, pairs}}},
	{"latency.svg", "throughput", "How long lock and unlock take, each caller with a name of its own", []panelOf{
		{"in memory, p50, ms", inMemory, p50}, {"in memory, p99, ms", inMemory, p99}}},
	{"contention.svg", "contention", "One lock, many contenders, each holds it for 1 ms", []panelOf{
		{"in memory, wait p99, ms", inMemory, p99}, {"in memory, handoffs/s", inMemory, handoffs}}},
}

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
	p := panel{title: of.title}
	for i, d := range designs {
		l := line{name: d.name, colour: i}
		measured := false
		for _, c := range contests {
			if c.store != of.store {
				continue
			}
			y := median(c.rounds.of(d.name, of.metric))
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
