package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// slowPair is more than a pair takes when fillers callers share the nodes.
const slowPair = 2 * time.Millisecond

// fillers is how many callers use the names of the part idle.
const fillers = 256

// idleNames locks and unlocks many names once each, and compares the nodes' data before and some
// time later. A turn takes that time, so there is one.
func idleNames(ctx context.Context, p plan, f *fleet) ([]*contest, error) {
	c := &contest{scene: fmt.Sprintf("%d names, %v later", p.used, p.idle), columns: []metric{pairs, dataInUse, dataIdle}, turns: 1,
		promises: []promise{atMost(5, ours, dataIdle)}}
	if f.store == durable {
		c.columns = append(c.columns, fileIdle)
		c.promises = append(c.promises, atMost(5, ours, fileIdle))
	}
	c.columns = append(c.columns, failed)
	c.entries = []entry{f.entry(ctx, ours, job{Kind: idleJob, Callers: fillers, Names: p.used, Hold: p.idle})}
	return []*contest{c}, nil
}

// idle locks and unlocks j.Names names once each, waits for j.Hold, and measures the data.
func (j job) idle(ctx context.Context, d design) (a answer, err error) {
	admins := make([]*redis.Client, len(j.Redis))
	for i, addr := range j.Redis {
		admins[i] = redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
		defer func() { err = errors.Join(err, admins[i].Close()) }()
	}
	// The nodes then know the scripts, and have the buffers of clients.
	if _, err := j.use(ctx, d, "before", fillers); err != nil {
		return answer{}, err
	}
	were, err := weighAll(ctx, admins)
	if err != nil {
		return answer{}, err
	}
	if a, err = j.use(ctx, d, "used", j.Names); err != nil {
		return a, err
	}
	are, err := weighAll(ctx, admins)
	if err != nil {
		return a, err
	}
	a.Figures[dataInUse] = most(were, are, dataIdle)
	if err := pause(ctx, j.Hold); err != nil {
		return a, err
	}
	if are, err = weighAll(ctx, admins); err != nil {
		return a, err
	}
	a.Figures[dataIdle] = most(were, are, dataIdle)
	if _, ok := are[0][fileIdle]; ok {
		a.Figures[fileIdle] = most(were, are, fileIdle)
	}
	return a, nil
}

// use has the callers of one client lock and unlock n names, each once.
func (j job) use(ctx context.Context, d design, prefix string, n int) (answer, error) {
	c, err := d.open(j.Addrs, j.Callers)
	if err != nil {
		return answer{}, err
	}
	var next atomic.Int64
	callers := make([]caller, j.Callers)
	var running sync.WaitGroup
	began := time.Now()
	for i := range callers {
		running.Go(func() {
			for ctx.Err() == nil {
				at := next.Add(1)
				if at > int64(n) {
					return
				}
				if _, err := lockUnlock(ctx, c, fmt.Sprintf("%s:%d", prefix, at)); err != nil {
					callers[i].failed++
					callers[i].failure = err
				}
			}
		})
	}
	running.Wait()
	a := answer{Figures: figures{pairs: float64(n) / time.Since(began).Seconds()}}
	for _, c := range callers {
		a.Figures[failed] += float64(c.failed)
		if c.failure != nil {
			a.Failure = c.failure.Error()
		}
	}
	return a, errors.Join(c.close(), ctx.Err())
}

// most is the largest growth of a figure of any server.
func most(were, are []figures, m metric) float64 {
	grown := make(figures)
	for i := range are {
		grown[m] = max(grown[m], are[i][m]-were[i][m])
	}
	return grown[m]
}

// weighAll returns the memory in use of each server, and the size of its append-only file after a
// rewrite, if it has one, in MB.
func weighAll(ctx context.Context, servers []*redis.Client) ([]figures, error) {
	all := make([]figures, len(servers))
	for i, s := range servers {
		var err error
		if all[i], err = weigh(ctx, s); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func weigh(ctx context.Context, s *redis.Client) (figures, error) {
	fields, err := infoOf(ctx, s)
	if err != nil {
		return nil, err
	}
	if fields["aof_enabled"] == "1" {
		if fields, err = rewrite(ctx, s); err != nil {
			return nil, err
		}
	}
	f := make(figures)
	for m, field := range map[metric]string{dataIdle: "used_memory", fileIdle: "aof_current_size"} {
		if text, ok := fields[field]; ok {
			n, err := strconv.ParseFloat(text, 64)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", field, err)
			}
			f[m] = n / 1e6
		}
	}
	return f, nil
}

// rewrite rewrites the append-only file of a server, and returns what the server says afterwards.
func rewrite(ctx context.Context, s *redis.Client) (map[string]string, error) {
	asked := false
	for {
		fields, err := infoOf(ctx, s)
		if err != nil {
			return nil, err
		}
		busy := fields["aof_rewrite_in_progress"] != "0" || fields["aof_rewrite_scheduled"] != "0"
		switch {
		case busy:
		case asked && fields["aof_last_bgrewrite_status"] != "ok":
			return nil, errors.New("the server cannot rewrite its append-only file")
		case asked:
			return fields, nil
		default:
			if err := s.BgRewriteAOF(ctx).Err(); err != nil {
				return nil, err
			}
			asked = true
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// infoOf returns the fields of INFO.
func infoOf(ctx context.Context, s *redis.Client) (map[string]string, error) {
	sections, err := s.InfoMap(ctx).Result()
	all := make(map[string]string)
	for _, fields := range sections {
		maps.Copy(all, fields)
	}
	return all, err
}
