package main

import "testing"

func TestCommandStatsCountOnlyTheNamedCommands(t *testing.T) {
	before, err := parseCommandStats("# Commandstats\r\ncmdstat_evalsha:calls=10,usec=100,usec_per_call=10.00,rejected_calls=0,failed_calls=0\r\n")
	if err != nil {
		t.Fatal(err)
	}
	after, err := parseCommandStats("# Commandstats\r\n" +
		"cmdstat_evalsha:calls=14,usec=148,usec_per_call=10.57,rejected_calls=0,failed_calls=0\r\n" +
		"cmdstat_eval:calls=1,usec=60,usec_per_call=60.00,rejected_calls=0,failed_calls=0\r\n" +
		"cmdstat_config|set:calls=3,usec=9,usec_per_call=3.00,rejected_calls=0,failed_calls=0\r\n" +
		"cmdstat_set:calls=5,usec=25,usec_per_call=5.00,rejected_calls=0,failed_calls=0\r\n")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := after.since(before, "evalsha", "eval"), int64(5); got != want {
		t.Errorf("%d calls, want %d", got, want)
	}
}

func TestBrokenCommandStatsAreAnError(t *testing.T) {
	if stats, err := parseCommandStats("cmdstat_get:calls=many,usec=1"); err == nil {
		t.Errorf("no error, but %v", stats)
	}
}
