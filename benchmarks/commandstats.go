package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// commandStats is how often servers ran each command, by the command's lower-case name.
type commandStats map[string]int64

// sumCommandStats returns the sum over all servers since they were started.
func sumCommandStats(ctx context.Context, servers []*redis.Client) (commandStats, error) {
	sum := make(commandStats)
	for _, s := range servers {
		info, err := s.Info(ctx, "commandstats").Result()
		if err != nil {
			return nil, err
		}
		stats, err := parseCommandStats(info)
		if err != nil {
			return nil, err
		}
		for name, calls := range stats {
			sum[name] += calls
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
		calls, _, _ := strings.Cut(strings.TrimPrefix(fields, "calls="), ",")
		n, err := strconv.ParseInt(calls, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("commandstats: %q: %w", line, err)
		}
		stats[name] = n
	}
	return stats, nil
}

// since is how often the named commands together were run between before and s.
func (s commandStats) since(before commandStats, names ...string) (calls int64) {
	for _, name := range names {
		calls += s[name] - before[name]
	}
	return calls
}
