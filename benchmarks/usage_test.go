package main

import (
	"testing"
	"time"
)

func TestProcessTimesAreReadFromProc(t *testing.T) {
	stat := "42 (redis server) 1) S 1 42 42 0 -1 4194560 100 0 0 0 150 50 7 9 20 0 5 0 1000 60000000 3000"
	if got := parseStat(stat); got != 2*time.Second {
		t.Errorf("%v, want 150 and 50 ticks: 2s", got)
	}
	if got := parseStat("42 (x) S 1"); got != 0 {
		t.Errorf("a short line gives %v", got)
	}
}

func TestReadsAndWritesAreReadFromProc(t *testing.T) {
	reads, writes := parseIO("rchar: 9\nwchar: 8\nsyscr: 21\nsyscw: 12\nread_bytes: 4\n")
	if reads != 21 || writes != 12 {
		t.Errorf("%d reads, %d writes, want 21 and 12", reads, writes)
	}
}

func TestUsageIsSharedAmongThePairs(t *testing.T) {
	before := usage{mallocs: 100, bytes: 1000, client: time.Millisecond, reads: 5, writes: 5}
	after := usage{mallocs: 500, bytes: 41_000, client: 5 * time.Millisecond, server: 2 * time.Millisecond, reads: 25, writes: 15}
	f := after.since(before).each(10)
	for m, want := range map[metric]float64{allocs: 40, kilobytes: 4, clientCPU: 400, serverCPU: 200, reads: 2, writes: 1} {
		if f[m] != want {
			t.Errorf("%s: %v, want %v", m, f[m], want)
		}
	}
	if f := (usage{mallocs: 1}).each(1); len(f) != 3 {
		t.Errorf("%v: what was not measured must not be there", f)
	}
}
