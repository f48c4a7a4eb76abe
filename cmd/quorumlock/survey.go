package main

import (
	"context"
	"errors"
	"hash/maphash"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/redlock"
)

const (
	scanCount    = 1000    // keys that a server scans in one step
	burst        = 128     // locks that are inspected at the same time
	atOnce       = 1024    // the same while a node does not answer
	maxRemember  = 1 << 20 // names that are not shown twice: 16 MB
	patternOfAll = "*"
)

// inspect asks all nodes about one lock of any kind.
func (c *cluster) inspect(ctx context.Context, name string) (lockView, error) {
	in, err := c.Inspect(ctx, name)
	return viewOf(name, in, err), err
}

// viewOf converts an inspection and its error.
func viewOf(name string, in redlock.Inspection, err error) lockView {
	kind := kindMutex
	switch s := in.State; {
	case otherKind(err) != nil:
		kind = kindOther
	case err != nil:
		kind = kindUnknown
	case len(s.Readers) > 0:
		kind = kindReaders
	case len(s.Slots) > 0:
		kind = kindSemaphore
	case s.Owner == "":
		kind = kindFree
	}
	return newLockView(name, kind, err == nil, in, time.Now())
}

// survey finds the locks of a cluster that match a pattern and are held or waited for. It shows
// each lock once, in no order. It is gentle: each server scans a thousand keys at a time, which
// takes it less than a millisecond, and pauses in between.
//
// A held lock is at a quorum of the nodes, so any N − Q + 1 nodes include it: survey searches only
// that many. Its memory does not grow with the number of locks, beyond the names of the first
// million.
type survey struct {
	*cluster
	pattern string
	limit   int  // the maximum number of locks to show; 0 for all
	queues  bool // above limit, also show up to limit locks with waiters; not for names with braces

	More   bool    // there are more than limit
	Failed []error // nodes with a failed search
	Locks  int     // number of locks shown

	seen map[uint64]struct{}
	seed maphash.Seed
}

func newSurvey(c *cluster, pattern string, limit int) *survey {
	if pattern == "" {
		pattern = patternOfAll
	}
	return &survey{cluster: c, pattern: pattern, limit: limit, seen: make(map[uint64]struct{}), seed: maphash.MakeSeed()}
}

// run calls show for each lock. It returns show's error, or a *quorumlock.QuorumError if the search
// of too many nodes fails.
func (s *survey) run(ctx context.Context, show func(lockView) error) error {
	if !strings.ContainsAny(s.pattern, `*?[\`) { // a name
		return s.showAll(ctx, []string{s.pattern}, show)
	}
	if !s.queues {
		return s.searchAll(ctx, glob(s.prefix)+s.pattern, show)
	}
	shown := make(map[string]struct{})
	err := s.searchAll(ctx, glob(s.prefix)+s.pattern, func(v lockView) error {
		shown[v.Name] = struct{}{}
		return show(v)
	})
	if err != nil || !s.More {
		return err
	}
	rest := newSurvey(s.cluster, s.pattern, s.limit)
	return rest.searchAll(ctx, queueKey+glob(s.prefix)+s.pattern+"}", func(v lockView) error {
		if _, before := shown[v.Name]; before {
			return nil
		}
		s.Locks++
		return show(v)
	})
}

// searchAll shows the locks with keys that match. It searches N − Q + 1 nodes, and fails if fewer
// of them can be searched.
func (s *survey) searchAll(ctx context.Context, match string, show func(lockView) error) error {
	needed := len(s.nodes) - s.quorum + 1
	searched := 0
	failed := &quorumlock.QuorumError{Needed: needed}
	for _, n := range s.nodes {
		if searched == needed || s.More {
			break
		}
		err := s.search(ctx, n.Client().Scan, match, show)
		if err == nil {
			searched++
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if _, ok := errors.AsType[*scanError](err); !ok {
			return err
		}
		failed.Nodes = append(failed.Nodes, &quorumlock.NodeError{Node: n.String(), Err: err})
		s.Failed = append(s.Failed, failed.Nodes[len(failed.Nodes)-1])
	}
	if searched < needed && !s.More {
		failed.Granted = searched
		return failed
	}
	return nil
}

// scanError is the failed search of a node.
type scanError struct{ error }

func (e *scanError) Unwrap() error { return e.error }

// scanner is the SCAN of a server.
type scanner func(ctx context.Context, cursor uint64, match string, count int64) *redis.ScanCmd

// search shows the locks with keys at one node that were not shown before.
func (s *survey) search(ctx context.Context, scan scanner, match string, show func(lockView) error) error {
	for cursor := uint64(0); ; {
		began := time.Now()
		step, cancel := context.WithTimeout(ctx, time.Second)
		keys, next, err := scan(step, cursor, match, scanCount).Result()
		cancel()
		if err != nil {
			return &scanError{err}
		}
		rest := time.Since(began) / 2
		if err := s.showAll(ctx, s.names(keys), show); err != nil || s.More {
			return err
		}
		if cursor = next; cursor == 0 {
			return nil
		}
		time.Sleep(min(rest, 10*time.Millisecond))
	}
}

// inspectAll returns the locks with these names that are in use, in the order of the names. It asks
// about one burst of locks after the other, without waiting long for answers. So a node that does
// not answer delays the whole by its timeout only once.
func (s *survey) inspectAll(ctx context.Context, names []string) ([]*lockView, error) {
	found := make([]*lockView, len(names))
	var all errgroup.Group
	for from := 0; from < len(names); from += burst {
		var some sync.WaitGroup
		for i, name := range names[from:min(from+burst, len(names))] {
			some.Add(1)
			all.Go(func() error {
				defer some.Done()
				v, err := s.inspect(ctx, name)
				if isNoLock(err) {
					return nil
				}
				if err == nil && (v.Held || v.State.Waiting > 0) {
					found[from+i] = &v
				}
				return err
			})
		}
		over := make(chan struct{})
		all.Go(func() error { some.Wait(); close(over); return nil })
		select {
		case <-over:
		case <-time.After(20 * time.Millisecond):
		}
	}
	return found, all.Wait()
}

// isNoLock reports whether an inspection found that the name is no lock.
func isNoLock(err error) bool {
	if err == nil {
		return false
	}
	_, few := errors.AsType[*quorumlock.QuorumError](err)
	return !few || errors.Is(err, quorumlock.ErrNotALock) || errors.Is(err, quorumlock.ErrWrongKind)
}

// glob returns a pattern that matches only s.
func glob(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if strings.IndexByte(`*?[]\^-`, c) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(c)
	}
	return b.String()
}

// queueKey is the prefix of the keys of queues, for names without braces.
const queueKey = "quorumlock_queue:{"

// names returns the names of the locks that the keys may belong to, each once.
func (s *survey) names(keys []string) (names []string) {
	for _, key := range keys {
		if name, ok := strings.CutPrefix(key, queueKey); ok && strings.HasSuffix(name, "}") {
			key = strings.TrimSuffix(name, "}")
		}
		name, ok := strings.CutPrefix(key, s.prefix)
		if !ok || quorumlock.ValidateName(key) != nil {
			continue
		}
		h := maphash.String(s.seed, key)
		if _, seen := s.seen[h]; seen {
			continue
		}
		if len(s.seen) < maxRemember {
			s.seen[h] = struct{}{}
		}
		names = append(names, name)
	}
	return names
}

// showAll inspects locks, and shows those in use.
func (s *survey) showAll(ctx context.Context, names []string, show func(lockView) error) error {
	for len(names) > 0 {
		some := names[:min(len(names), atOnce)]
		names = names[len(some):]
		found, err := s.inspectAll(ctx, some)
		if err != nil {
			return err
		}
		for _, v := range found {
			if v == nil {
				continue
			}
			if s.limit > 0 && s.Locks == s.limit {
				s.More = true
				return nil
			}
			if err := show(*v); err != nil {
				return err
			}
			s.Locks++
		}
	}
	return nil
}
