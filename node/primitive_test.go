package node_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/node"
)

func TestThePrimitiveFromAcquireToRelease(t *testing.T) {
	inBubble(t, func(t *testing.T, s *embedded.Server, n *node.Node) {
		first, err := n.Acquire(t.Context(), "x", alice, ttl, 1)
		if err != nil || !first.Granted || first.Again {
			t.Fatalf("Acquire: %+v, %v", first, err)
		}
		if want := uint64(time.Now().UnixMicro()); first.Token != want {
			t.Errorf("token %d, want the clock's %d", first.Token, want)
		}
		time.Sleep(time.Second)
		if a, err := n.Acquire(t.Context(), "x", bob, ttl, 1); err != nil || a.Granted || a.TTL != ttl-time.Second {
			t.Errorf("somebody else: %+v, %v, want a refusal with 9s", a, err)
		}
		if a, err := n.Acquire(t.Context(), "x", alice, ttl, 2); err != nil || !a.Again || a.Token != first.Token {
			t.Errorf("once more: %+v, %v", a, err)
		}
		want := quorumlock.State{Owner: alice, HoldCount: 2, TTL: ttl, Token: first.Token}
		if got, err := transport.Of(n).Inspect(t.Context(), "x"); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("Inspect: %+v, %v, want %+v", got, err, want)
		}
		time.Sleep(time.Second)
		if ok, err := n.Renew(t.Context(), "x", bob, time.Hour); ok || err != nil {
			t.Errorf("Renew of somebody else: %v, %v", ok, err)
		}
		if ok, err := n.Renew(t.Context(), "x", alice, time.Minute); !ok || err != nil {
			t.Errorf("Renew: %v, %v", ok, err)
		}
		if got := s.Redis.TTL("x"); got != time.Minute {
			t.Errorf("after Renew it expires in %v", got)
		}
		if _, err := n.Release(t.Context(), "x", bob, 1); !errors.Is(err, quorumlock.ErrNotHeld) {
			t.Errorf("Release by somebody else: %v, want ErrNotHeld", err)
		}
		for left := 1; left >= 0; left-- {
			if got, err := n.Release(t.Context(), "x", alice, left+1); got != left || err != nil {
				t.Errorf("Release: %d left, %v, want %d", got, err, left)
			}
		}
		if held, err := transport.Of(n).ForceRelease(t.Context(), "x"); held || err != nil {
			t.Errorf("ForceRelease of a free lock: %v, %v", held, err)
		}
		mustAcquire(t, n, bob, 1)
		if held, err := transport.Of(n).ForceRelease(t.Context(), "x"); !held || err != nil {
			t.Errorf("ForceRelease: %v, %v", held, err)
		}
		locktest.NoLocks(t, []*embedded.Server{s})
	})
}

// calls are all calls of the primitive; each returns only its error.
var calls = map[string]func(ctx context.Context, n *node.Node) error{
	"Acquire": func(ctx context.Context, n *node.Node) error {
		_, err := n.Acquire(ctx, "x", alice, ttl, 1)
		return err
	},
	"Renew":   func(ctx context.Context, n *node.Node) error { _, err := n.Renew(ctx, "x", alice, ttl); return err },
	"Release": func(ctx context.Context, n *node.Node) error { _, err := n.Release(ctx, "x", alice, 1); return err },
	"ForceRelease": func(ctx context.Context, n *node.Node) error {
		_, err := transport.Of(n).ForceRelease(ctx, "x")
		return err
	},
	"Inspect": func(ctx context.Context, n *node.Node) error { _, err := transport.Of(n).Inspect(ctx, "x"); return err },
}

// noContext is what a program gives by mistake.
var noContext context.Context

func TestBadArgumentsAreRefusedBeforeAnythingIsSent(t *testing.T) {
	inBubble(t, func(t *testing.T, s *embedded.Server, n *node.Node) {
		s.Kill() // whatever is sent would fail otherwise
		ctx := t.Context()
		for _, tt := range []struct {
			name string
			err  func() error
			want string
		}{
			{"no name", func() error { _, err := n.Acquire(ctx, "", alice, ttl, 1); return err }, "the name of the lock is empty: use a name"},
			{"no name to renew", func() error { _, err := n.Renew(ctx, "", alice, ttl); return err }, "the name of the lock is empty: use a name"},
			{"no name to release", func() error { _, err := n.Release(ctx, "", alice, 1); return err }, "the name of the lock is empty: use a name"},
			{"no name to force", func() error { _, err := transport.Of(n).ForceRelease(ctx, ""); return err }, "the name of the lock is empty: use a name"},
			{"no name to inspect", func() error { _, err := transport.Of(n).Inspect(ctx, ""); return err }, "the name of the lock is empty: use a name"},
			{"a name beside locks", func() error { _, err := n.Acquire(ctx, "redisson_lock_token:{x}", alice, ttl, 1); return err }, "use a name with another beginning"},
			{"a name beside locks to renew", func() error { _, err := n.Renew(ctx, "quorumlock_queue:{x}", alice, ttl); return err }, "use a name with another beginning"},
			{"a name beside locks to release", func() error { _, err := n.Release(ctx, "quorumlock_queue:{x}", alice, 1); return err }, "use a name with another beginning"},
			{"a name beside locks to force", func() error { _, err := transport.Of(n).ForceRelease(ctx, "redisson_lock_token:{x}"); return err }, "use a name with another beginning"},
			{"a name beside locks to inspect", func() error { _, err := transport.Of(n).Inspect(ctx, "redisson_lock_token:{x}"); return err }, "use a name with another beginning"},
			{"an owner without a number", func() error { _, err := n.Acquire(ctx, "x", "alice", ttl, 1); return err }, "is not <client>:<n>"},
			{"an asterisk", func() error { _, err := n.Acquire(ctx, "x", "*", ttl, 1); return err }, "without spaces, * and /"},
			{"an owner to whom a lock was handed", func() error { _, err := n.Acquire(ctx, "x", alice+"/1", ttl, 1); return err }, "without spaces, * and /"},
			{"no context", func() error { _, err := n.Acquire(noContext, "x", alice, ttl, 1); return err }, "use context.Background()"},
			{"no context to renew", func() error { _, err := n.Renew(noContext, "x", alice, ttl); return err }, "use context.Background()"},
			{"no context to release", func() error { _, err := n.Release(noContext, "x", alice, 1); return err }, "use context.Background()"},
			{"no context to force", func() error { _, err := transport.Of(n).ForceRelease(noContext, "x"); return err }, "use context.Background()"},
			{"no context to inspect", func() error { _, err := transport.Of(n).Inspect(noContext, "x"); return err }, "use context.Background()"},
			{"no context to ask", func() error { _, err := n.Status(noContext); return err }, "use context.Background()"},
			{"no owner", func() error { _, err := n.Acquire(ctx, "x", "", ttl, 1); return err }, "the owner is empty: use quorumlock.NewOwner"},
			{"no owner to renew", func() error { _, err := n.Renew(ctx, "x", "", ttl); return err }, "the owner is empty: use quorumlock.NewOwner"},
			{"hold 0", func() error { _, err := n.Acquire(ctx, "x", alice, ttl, 0); return err }, "hold is 0: use 1"},
			{"negative hold", func() error { _, err := n.Release(ctx, "x", alice, -1); return err }, "hold is -1: use 1"},
			{"short TTL", func() error { _, err := n.Acquire(ctx, "x", alice, time.Millisecond, 1); return err }, "ttl 1ms is too short: use at least 10ms"},
			{"negative TTL", func() error { _, err := n.Renew(ctx, "x", alice, -ttl); return err }, "ttl -10s is too short: use at least 10ms"},
		} {
			if err := tt.err(); err == nil || !strings.Contains(err.Error(), "quorumlock: ") || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: %v, want %q in it", tt.name, err, tt.want)
			}
		}
	})
}

func TestACallOfAStalledNodeEndsAtItsTimeout(t *testing.T) {
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				servers, nodes := locktest.Nodes(t, 1, node.WithTimeout(80*time.Millisecond))
				servers[0].Stall()
				start := time.Now()
				err := call(t.Context(), nodes[0])
				if e, ok := errors.AsType[*quorumlock.NodeError](err); !ok || e.Node != "node-1" || !errors.Is(e, context.DeadlineExceeded) {
					t.Errorf("error %v, want a deadline of node-1", err)
				}
				if took := time.Since(start); took != 80*time.Millisecond {
					t.Errorf("it took %v, want 80ms", took)
				}
				servers[0].Resume()
			})
		})
	}
}

// go-redis does not heed a deadline in the midst of a read unless its client was built to.
func TestTheTimeoutHoldsWithAClientThatKnowsNoDeadlines(t *testing.T) {
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				servers, _ := locktest.Nodes(t, 1)
				client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379", Dialer: servers[0].DialContext, ReadTimeout: time.Hour}) // go-redis looks up a name outside the bubble
				n := node.New(client, node.WithTimeout(80*time.Millisecond))
				err := transport.Of(n).Err()
				if err != nil {
					t.Fatal(err)
				}
				if _, err := transport.Of(n).Inspect(t.Context(), "x"); err != nil {
					t.Fatal(err)
				}
				servers[0].Stall()
				start := time.Now()
				if err := call(t.Context(), n); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("error %v, want a deadline", err)
				}
				if took := time.Since(start); took != 80*time.Millisecond {
					t.Errorf("it took %v, want 80ms", took)
				}
				servers[0].Resume()
				if err := errors.Join(n.Close(), client.Close()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestACallReturnsAsSoonAsItsContextIsDone(t *testing.T) {
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *embedded.Server, n *node.Node) {
				s.Delay(100 * time.Millisecond)
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(30*time.Millisecond, cancel)
				start := time.Now()
				if err := call(ctx, n); !errors.Is(err, context.Canceled) {
					t.Errorf("error %v, want context.Canceled", err)
				}
				if took := time.Since(start); took != 30*time.Millisecond {
					t.Errorf("it took %v, want 30ms", took)
				}
				start = time.Now()
				if err := call(ctx, n); !errors.Is(err, context.Canceled) || time.Since(start) != 0 {
					t.Errorf("with a context that is done: %v, after %v", err, time.Since(start))
				}
			})
		})
	}
}

func TestAnAcquireWhoseCallerHasGoneIsUndone(t *testing.T) {
	inBubble(t, func(t *testing.T, s *embedded.Server, n *node.Node) {
		know(t, n)
		s.Delay(100 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
		defer cancel()
		if _, err := n.Acquire(ctx, "x", alice, ttl, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("error %v, want the context's", err)
		}
		checkCount(t, s, alice, "1") // it was granted, and the answer is on its way
		time.Sleep(200 * time.Millisecond)
		checkCount(t, s, alice, "")
	})
}

// know makes n connect, and its server know the scripts: what is sent next is sent once.
func know(t *testing.T, n *node.Node) {
	t.Helper()
	for name, call := range calls {
		if err := call(t.Context(), n); err != nil && !errors.Is(err, quorumlock.ErrNotHeld) {
			t.Fatal(name, err)
		}
	}
	if _, err := transport.Of(n).ForceRelease(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
}

// An entry that may have been made is not taken back: the same call again would lose what it confirms.
func TestAnEntryWhoseReplyIsLostCanBeMadeAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, s *embedded.Server, n *node.Node) {
		know(t, n)
		for hold := 1; hold <= 3; hold++ {
			s.LoseReplies(1)
			if _, err := n.Acquire(t.Context(), "x", alice, ttl, hold); err == nil {
				t.Fatal("no error for a reply that was lost")
			}
			a, err := n.Acquire(t.Context(), "x", alice, ttl, hold)
			if err != nil || !a.Granted || !a.Again {
				t.Errorf("the same call again: %+v, %v", a, err)
			}
			synctest.Wait()
			checkCount(t, s, alice, fmt.Sprint(hold))
		}
	})
}

// The outcome of a release or a renewal may be unknown; that of the same call again is not.
func TestACallIsSafeToRepeatAfterALostReply(t *testing.T) {
	inBubble(t, func(t *testing.T, s *embedded.Server, n *node.Node) {
		know(t, n)
		for hold := 1; hold <= 3; hold++ {
			mustAcquire(t, n, alice, hold)
		}
		s.LoseReplies(1)
		if _, err := n.Release(t.Context(), "x", alice, 3); err == nil {
			t.Fatal("no error for a reply that was lost")
		}
		checkCount(t, s, alice, "2")
		if _, err := n.Release(t.Context(), "x", alice, 3); !errors.Is(err, quorumlock.ErrNotHeld) {
			t.Errorf("the same release again: %v, want ErrNotHeld", err)
		}
		checkCount(t, s, alice, "2")
		s.LoseReplies(1)
		if _, err := n.Renew(t.Context(), "x", alice, ttl); err == nil {
			t.Fatal("no error for a reply that was lost")
		}
		checkCount(t, s, alice, "2")
	})
}

// When the node cannot be asked to undo what it may have granted, the TTL does.
func TestAnAcquireThatRunsTooLateIsGoneAtItsTTL(t *testing.T) {
	inBubble(t, func(t *testing.T, s *embedded.Server, n *node.Node) {
		know(t, n)
		s.Stall()
		if _, err := n.Acquire(t.Context(), "x", alice, ttl, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("error %v, want a deadline", err)
		}
		time.Sleep(5 * time.Second)
		s.Resume()
		synctest.Wait()
		checkCount(t, s, alice, "1")
		time.Sleep(ttl)
		checkCount(t, s, alice, "")
	})
}

func TestWhatAServerCannotDoIsAnErrorOfTheNode(t *testing.T) {
	for _, said := range []string{"READONLY You can't write against a read only replica.", "LOADING Redis is loading the dataset in memory", "NOPERM this user has no permissions", "OOM command not allowed when used memory > 'maxmemory'."} {
		for name, call := range calls {
			t.Run(name+", "+strings.Fields(said)[0], func(t *testing.T) {
				inBubble(t, func(t *testing.T, s *embedded.Server, n *node.Node) {
					if _, err := transport.Of(n).Inspect(t.Context(), "x"); err != nil {
						t.Fatal(err)
					}
					s.Redis.SetError(said)
					err := call(t.Context(), n)
					e, ok := errors.AsType[*quorumlock.NodeError](err)
					if !ok || e.Node != "node-1" || !redis.HasErrorPrefix(e.Err, strings.Fields(said)[0]) {
						t.Errorf("error %v, want what node-1 said", err)
					}
					s.Redis.SetError("")
				})
			})
		}
	}
}

func TestTheWrongTypeAtTheKeyIsAnErrorAndIsLeftAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, s *embedded.Server, n *node.Node) {
		if err := s.Redis.Set("x", "a value"); err != nil {
			t.Fatal(err)
		}
		for name, call := range calls {
			if name == "ForceRelease" {
				continue // it deletes whatever is there
			}
			if err := call(t.Context(), n); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
				t.Errorf("%s: %v, want WRONGTYPE", name, err)
			}
		}
		synctest.Wait()
		if got, err := s.Redis.Get("x"); got != "a value" {
			t.Errorf("it is %q, %v now", got, err)
		}
	})
}

func TestAnswersOfAnotherScriptAreErrorsOfTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := dial(t, "redis://h", node.WithDialer(answering(func(request string) string {
			if strings.Contains(request, "hello") {
				return "-ERR unknown command 'hello'\r\n"
			}
			return "+OK\r\n"
		})))
		for name, call := range calls {
			err := call(t.Context(), n)
			if e, ok := errors.AsType[*quorumlock.NodeError](err); !ok || !strings.Contains(e.Error(), `unexpected reply "OK"`) {
				t.Errorf("%s: %v, want a *NodeError with the reply", name, err)
			}
		}
	})
}

func TestACallAfterCloseIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, s *embedded.Server, n *node.Node) {
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
		for name, call := range calls {
			if err := call(t.Context(), n); !errors.Is(err, quorumlock.ErrClosed) {
				t.Errorf("%s: %v, want ErrClosed", name, err)
			}
		}
		if err := n.Close(); err != nil {
			t.Errorf("Close once more: %v", err)
		}
	})
}

func TestCloseWaitsForWhatIsUnderWay(t *testing.T) {
	inBubble(t, func(t *testing.T, s *embedded.Server, n *node.Node) {
		mustAcquire(t, n, bob, 1)
		s.Delay(100 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if _, err := n.Acquire(ctx, "y", alice, ttl, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("error %v, want a deadline", err)
		}
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
		if s.Redis.Exists("y") {
			t.Error("the node was closed before the late grant was undone")
		}
	})
}

// Acquire names the holder. That must not let a caller free or renew the hold of a lease.
func TestThePrimitiveRefusesTheOwnerOfALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, nodes := locktest.Nodes(t, 1)
		lease := locktest.Lock(t, nodes[0].Mutex("x"))
		refused, err := nodes[0].Acquire(t.Context(), "x", quorumlock.NewOwner(), time.Minute, 1)
		if err != nil || refused.Granted || refused.Holder == "" {
			t.Fatalf("Acquire: %+v, %v, want a refusal that names the holder", refused, err)
		}
		if _, err := nodes[0].Release(t.Context(), "x", refused.Holder, 1); !errors.Is(err, quorumlock.ErrMisuse) {
			t.Errorf("Release: %v, want ErrMisuse", err)
		}
		if _, err := nodes[0].Renew(t.Context(), "x", refused.Holder, time.Minute); !errors.Is(err, quorumlock.ErrMisuse) {
			t.Errorf("Renew: %v, want ErrMisuse", err)
		}
		locktest.Held(t, lease)
	})
}
