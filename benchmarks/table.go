package main

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// table is printed as Markdown with its columns aligned: it reads well in a terminal and can be
// pasted into a document.
type table struct {
	title string
	head  []string
	rows  [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) print(w io.Writer) {
	width := make([]int, len(t.head))
	for _, row := range append([][]string{t.head}, t.rows...) {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	line := func(row []string) {
		for i, cell := range row {
			fmt.Fprintf(w, "| %s%s ", cell, strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell)))
		}
		fmt.Fprintln(w, "|")
	}
	fmt.Fprintf(w, "\n### %s\n\n", t.title)
	line(t.head)
	for _, n := range width {
		fmt.Fprintf(w, "|%s", strings.Repeat("-", n+2))
	}
	fmt.Fprintln(w, "|")
	for _, row := range t.rows {
		line(row)
	}
}

// number prints a figure with its meaningful decimals.
func number(m metric, v float64) string {
	switch {
	case m == fairness || m == roundTripsALock:
		return fmt.Sprintf("%.3f", v)
	case m == lost || m == failed || m == granted || m == goroutines || v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
