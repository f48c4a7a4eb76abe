package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// commandStats is how often servers ran each command, and for how long, by the command's lower-case
// name.
type commandStats map[string]commandStat

type commandStat struct {
	calls int64
	usec  int64 // within the server: neither the network nor the parsing is in it
}

// commandStats returns the sum over all servers since they were started.
func (s *servers) commandStats(ctx context.Context) (commandStats, error) {
	sum := make(commandStats)
	for _, one := range s.all {
		info, err := one.admin.Info(ctx, "commandstats").Result()
		if err != nil {
			return nil, err
		}
		stats, err := parseCommandStats(info)
		if err != nil {
			return nil, err
		}
		for name, st := range stats {
			sum[name] = commandStat{sum[name].calls + st.calls, sum[name].usec + st.usec}
		}
	}
	return sum, nil
}

// parseCommandStats reads lines such as
//
//	cmdstat_evalsha:calls=12,usec=340,usec_per_call=28.33,rejected_calls=0,failed_calls=0
func parseCommandStats(info string) (commandStats, error) {
	stats := make(commandStats)
	for line := range strings.Lines(info) {
		line, ok := strings.CutPrefix(strings.TrimSpace(line), "cmdstat_")
		if !ok {
			continue
		}
		name, fields, _ := strings.Cut(line, ":")
		var st commandStat
		for field := range strings.SplitSeq(fields, ",") {
			key, value, _ := strings.Cut(field, "=")
			var to *int64
			switch key {
			case "calls":
				to = &st.calls
			case "usec":
				to = &st.usec
			default:
				continue
			}
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("commandstats: %q: %w", line, err)
			}
			*to = n
		}
		stats[name] = st
	}
	return stats, nil
}

// since is what was run between before and s, of the named commands together.
func (s commandStats) since(before commandStats, names ...string) commandStat {
	var sum commandStat
	for _, name := range names {
		sum.calls += s[name].calls - before[name].calls
		sum.usec += s[name].usec - before[name].usec
	}
	return sum
}
