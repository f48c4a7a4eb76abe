package main

import (
	"encoding/xml"
	"io"
	"strings"
	"testing"
)

func TestChartIsWellFormedAndNamesEveryLine(t *testing.T) {
	c := chart{title: "a < b & c", panels: []panel{{
		title: "wait", xName: "contenders", xs: []string{"4", "16"},
		lines: []line{{"<line>", 0, []float64{1, 100}}, {"starved", 1, []float64{0, 0.5}}, {"nothing", 2, []float64{0, 0}}},
	}}}
	var texts []string
	marks := 0
	decoder := xml.NewDecoder(strings.NewReader(c.svg()))
	for {
		token, err := decoder.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch token := token.(type) {
		case xml.CharData:
			texts = append(texts, string(token))
		case xml.StartElement:
			if token.Name.Local == "circle" {
				marks++
			}
		}
	}
	all := strings.Join(texts, "\n")
	for _, want := range []string{"a < b & c", "<line>", "starved", "contenders", "16"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not in the chart", want)
		}
	}
	if marks != 3 {
		t.Errorf("%d values are marked, want the 3 that can be drawn", marks)
	}
	if strings.Contains(c.svg(), "NaN") || strings.Contains(c.svg(), "Inf") {
		t.Error("a coordinate is no number")
	}
}

func TestDecadesHoldAllValues(t *testing.T) {
	low, high := panel{lines: []line{{"", 0, []float64{0.3, 0, 12}}, {"", 1, []float64{4000}}}}.decades()
	if low != -1 || high != 4 {
		t.Errorf("10^%d to 10^%d, want 10^-1 to 10^4", low, high)
	}
	if low, high := (panel{lines: []line{{"", 0, []float64{10}}}}).decades(); low >= high {
		t.Errorf("one value has no room: 10^%d to 10^%d", low, high)
	}
}
