package main

import (
	"context"
	"runtime"
	"testing"
	"time"
)

// start returns five servers of the benchmark's own.
func start(b *testing.B) *servers {
	b.Helper()
	srv, err := startServers(b.Context(), nodes)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := srv.close(); err != nil {
			b.Error(err)
		}
	})
	return srv
}

// closing fails the benchmark if what it measured with cannot be closed.
func closing(b *testing.B, c interface{ close() error }) {
	b.Helper()
	b.Cleanup(func() {
		if err := c.close(); err != nil {
			b.Error(err)
		}
	})
}

func quantiles(b *testing.B, name string, s sample) {
	b.ReportMetric(float64(s.quantile(0.5).Microseconds()), name+"-p50-µs")
	b.ReportMetric(float64(s.quantile(0.99).Microseconds()), name+"-p99-µs")
}

// BenchmarkLockUnlockAgainstPlainClient is to have a p50-ratio of at most 1.
func BenchmarkLockUnlockAgainstPlainClient(b *testing.B) {
	d, err := newDuel(start(b), openQuorumlock, openPlain)
	if err != nil {
		b.Fatal(err)
	}
	closing(b, d)
	warm(b, warmUpTurns, d.turn)
	d.reset()
	for b.Loop() {
		if err := d.turn(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	quantiles(b, "lock", d.ones)
	quantiles(b, "plain", d.others)
	b.ReportMetric(over(d.ones.quantile(0.5), d.others.quantile(0.5)), "p50-ratio")
}

func warm(b *testing.B, turns int, turn func(context.Context) error) {
	b.Helper()
	for range turns {
		if err := turn(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOneNodeFarAway is to have a p99-ratio of at most 2. Use few iterations, such as 10: each of
// them is a block of locks.
func BenchmarkOneNodeFarAway(b *testing.B) {
	for name, pace := range map[string]time.Duration{"back-to-back": 0, "paced": 20 * time.Millisecond} {
		b.Run(name, func(b *testing.B) {
			s, err := newSlowNode(start(b), 100*time.Millisecond, pace)
			if err != nil {
				b.Fatal(err)
			}
			closing(b, s)
			block := func(ctx context.Context) error { return s.block(ctx, pacedBlock) }
			warm(b, 1, block)
			s.reset()
			for b.Loop() { // an iteration is a block of each
				if err := block(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			quantiles(b, "healthy", s.healthySample)
			quantiles(b, "slow", s.slowSample)
			b.ReportMetric(over(s.slowSample.quantile(0.99), s.healthySample.quantile(0.99)), "p99-ratio")
		})
	}
}

// BenchmarkLockUnlock has the allocations, and is what to profile.
func BenchmarkLockUnlock(b *testing.B) {
	for _, v := range uncontendedVariants() {
		b.Run(v.name, func(b *testing.B) {
			c, err := v.open(start(b).addrs())
			if err != nil {
				b.Fatal(err)
			}
			closing(b, c)
			turn := func(ctx context.Context) error { _, err := lockUnlock(ctx, c, "alone"); return err }
			warm(b, warmUpTurns, turn)
			b.ReportAllocs()
			for b.Loop() {
				if err := turn(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkHandoff is to have a ratio of at most 3.
func BenchmarkHandoff(b *testing.B) {
	h, err := newHandoff(start(b), contentionVariants()[0])
	if err != nil {
		b.Fatal(err)
	}
	closing(b, h)
	warm(b, warmUpTurns, h.turn)
	h.reset()
	for b.Loop() {
		if err := h.turn(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	quantiles(b, "handoff", h.delays)
	quantiles(b, "evalsha", h.one)
	b.ReportMetric(over(h.delays.quantile(0.5), h.one.quantile(0.5)), "p50-ratio")
}

// BenchmarkServerTime is to have acquire at most 1 µs above lineless-acquire.
func BenchmarkServerTime(b *testing.B) {
	s, err := measureServerTime(b.Context(), start(b)) // once, however many iterations are asked for
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(s.acquire, "acquire-µs")
	b.ReportMetric(s.linelessAcquire, "lineless-acquire-µs")
	b.ReportMetric(s.release, "release-µs")
	b.ReportMetric(s.linelessRelease, "lineless-release-µs")
}

// BenchmarkTenThousandLeases is to have fewer than 50 goroutines, and to lose none of its leases.
func BenchmarkTenThousandLeases(b *testing.B) {
	g, err := measureGoroutines(b.Context(), start(b), 10_000) // once, however many iterations are asked for
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(g.median), "goroutines")
	b.ReportMetric(float64(g.most), "goroutines-in-a-tick")
	b.ReportMetric(float64(g.lost), "lost-leases")
	b.ReportMetric(float64(runtime.NumGoroutine()), "goroutines-after")
}
