package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
)

// fakeReferee has work done by a function, and writes down who had turns.
func fakeReferee(least, most int, do func(name string, turn int) (answer, error)) (referee, *[]string) {
	var turns []string
	count := make(map[string]int)
	return referee{least: least, most: most,
		clear:    func(context.Context, *contest) error { turns = append(turns, "clear"); return nil },
		progress: func(string, ...any) {},
		work: func(_ context.Context, _ string, j job) (answer, error) {
			turns = append(turns, j.Design)
			count[j.Design]++
			return do(j.Design, count[j.Design])
		}}, &turns
}

func twoEntries(promises ...promise) *contest {
	return &contest{entries: []entry{{name: "a", job: job{Design: "a"}}, {name: "b", job: job{Design: "b"}}}, promises: promises}
}

func TestEntriesTakeTurnsOnCleanServers(t *testing.T) {
	r, turns := fakeReferee(3, 3, func(string, int) (answer, error) { return answer{Figures: figures{pairs: 1}}, nil })
	c := twoEntries()
	if err := r.run(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if len(*turns) != 12 {
		t.Fatalf("turns %q, want 3 rounds of 2, each after a clear", *turns)
	}
	for round := range slices.Chunk(*turns, 4) {
		if round[0] != "clear" || round[2] != "clear" || round[1] == round[3] {
			t.Errorf("a round was %q, want each of a and b once, after a clear", round)
		}
	}
}

// A close result is measured for longer, until it is clear or the rounds are used up.
func TestCloseContestGoesOn(t *testing.T) {
	for _, c := range []struct {
		name  string
		value func(turn int) float64
		want  int
	}{
		{"clear", func(int) float64 { return 1 }, 5},
		// 3 3 1 1 1 1 ...: the third quartile falls with the ninth.
		{"close at first", func(turn int) float64 {
			if turn < 3 {
				return 3
			}
			return 1
		}, 9},
		{"close for ever", func(turn int) float64 { return float64(1 + 2*(turn%2)) }, 15},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, _ := fakeReferee(5, 15, func(_ string, turn int) (answer, error) {
				return answer{Figures: figures{p99: c.value(turn)}}, nil
			})
			one := twoEntries(atMost(2, "a", p99))
			if err := r.run(t.Context(), one); err != nil {
				t.Fatal(err)
			}
			if got := len(one.rounds["a"]); got != c.want {
				t.Errorf("%d rounds, want %d", got, c.want)
			}
		})
	}
}

func TestFailedRoundIsSaidAndLeavesTheOthers(t *testing.T) {
	r, _ := fakeReferee(3, 3, func(name string, turn int) (answer, error) {
		if name == "b" && turn == 2 {
			return answer{}, errors.New("it broke")
		}
		return answer{Figures: figures{pairs: 1}}, nil
	})
	c := twoEntries()
	if err := r.run(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if len(c.rounds["a"]) != 3 || len(c.rounds.of("b", pairs)) != 2 || c.rounds["b"][1] != nil {
		t.Errorf("rounds %v, want a three times and b without its second", c.rounds)
	}
	if len(c.notes) != 1 || !strings.Contains(c.notes[0], "it broke") {
		t.Errorf("notes %q do not say what broke", c.notes)
	}
}

func TestMissingServerIsSaidLoudly(t *testing.T) {
	r, turns := fakeReferee(1, 1, func(string, int) (answer, error) { return answer{Figures: figures{pairs: 1}}, nil })
	c := twoEntries(atLeast(1, "a", pairs).times("b"))
	c.entries[1].missing = &notInstalled{"etcd", "etcd-server"}
	c.columns = []metric{pairs}
	if err := r.run(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if slices.Contains(*turns, "b") {
		t.Error("it was measured all the same")
	}
	var out strings.Builder
	rep := report{out: &out, judged: true, counts: make(map[verdict]int)}
	rep.part(part{title: "x"}, []*contest{c})
	if !strings.Contains(out.String(), "NOTE:") || !strings.Contains(out.String(), "apt-get install etcd-server") || !strings.Contains(out.String(), "NOT MEASURED") {
		t.Errorf("the report does not say it:\n%s", &out)
	}
	if rep.sum() == nil {
		t.Error("what was not measured counts as kept")
	}
}
