package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/core"
)

// said is an error reply of a server.
type said string

func (s said) Error() string { return string(s) }
func (said) RedisError()     {}

var _ redis.Error = said("")

// bareNode is a node that only has a name.
type bareNode struct {
	Node
	name string
}

func (n bareNode) String() string { return n.name }

// A node that refuses a call, perhaps because the slot of its keys moves, serves others. Names in
// the text of an error do not matter.
func TestANodeIsDownIfItDoesNotServe(t *testing.T) {
	old := "ERR Error running script (call to f_5b3f): @user_script:71: @user_script: 71: "
	for err, want := range map[error]bool{
		io.EOF:                   true,
		context.DeadlineExceeded: true,
		said("LOADING Redis is loading the dataset in memory"):                                            true,
		said("READONLY You can't write against a read only replica. script: 5b3f, on @user_script:20."):   true,
		said("MASTERDOWN Link with MASTER is down"):                                                       true,
		said("CLUSTERDOWN The cluster is down"):                                                           true,
		said("TRYAGAIN Multiple keys request during rehashing of slot"):                                   false,
		said("NOREPLICAS Not enough good replicas to write."):                                             true,
		said("BUSY Redis is busy running a script."):                                                      true,
		said("OOM command not allowed when used memory > 'maxmemory'. script: 5b3f, on @user_script:20."): true,
		said("MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist."):  true,
		said("ERR max number of clients reached"):                                                         true,
		said("WRONGTYPE Operation against a key holding the wrong kind of value"):                         false,
		said("NOPERM this user has no permissions to run the 'evalsha' command"):                          false,
		said("NOPERM User OOM has no permissions to run the 'evalsha' command"):                           false,
		said("NOAUTH Authentication required."):                                                           false,
		said("NOTALOCK BUSY:1"):                                                                           false,
		said("ERR the fencing token is not a number: delete redisson_lock_token:{ROOM}"):                  false,
		said("ERR the fencing token is not a number: delete redisson_lock_token:{LOADING}"):               false,
		said(old + "WRONGTYPE Operation against a key holding the wrong kind of value"):                   false,
		said(old + "the fencing token is not a number: delete redisson_lock_token:{OOM}"):                 false,
		quorumlock.ErrClosed: false,
		fmt.Errorf("%w: WRONGTYPE", quorumlock.ErrNotALock): false,
	} {
		for _, e := range []error{err, &quorumlock.NodeError{Node: "n", Err: err}, fmt.Errorf("no answer: %w", err)} {
			if got := isDown(e); got != want {
				t.Errorf("isDown(%v) = %v, want %v", e, got, want)
			}
		}
	}
	if isDown(errors.Join(quorumlock.ErrNotALock, io.EOF)) {
		t.Error("a key that is no lock makes no node down")
	}
}

// Too late is neither held nor an outage, and names the nodes that failed.
func TestALateGrantHasAnErrorOfItsOwn(t *testing.T) {
	far := bareNode{name: "far"}
	l := &Lock{name: "x", cells: []Cell{{Node: far}}, nodes: []Node{far}, Form: &Form{}}
	for name, tt := range map[string]struct {
		why    core.Reason
		parked *Parked
		text   string
	}{
		"no token in time":         {core.NoToken, nil, "node far: refused"},
		"the end of the TTL":       {core.TooLate, nil, "nothing is left of the TTL"},
		"the end of a parked hold": {core.TooLate, &Parked{}, "too little time is left for the detached hold"},
	} {
		c := &session{lock: l, taking: taking{parked: tt.parked}, machine: core.New(&core.Config{Tree: core.Majority(1, 1)}, nil, 1)}
		c.machine.Cells[0].Err = errors.New("refused")
		err := c.failure(tt.why)
		if !errors.Is(err, quorumlock.ErrTooLate) || errors.Is(err, quorumlock.ErrNoQuorum) || errors.Is(err, quorumlock.ErrHeld) || !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The last character of base64 has bits that no byte needs: a text that differs there is another
// text, and no hold's.
func TestATextThatDiffersInAnyCharacterIsNoHold(t *testing.T) {
	for _, key := range []string{"x", "xy", "xyz"} {
		p := &Parked{Key: key, Owner: "alice:1", Need: 2, Until: time.UnixMilli(1e12), Source: core.Source{Token: 7, Counts: []uint64{7, 8, 9}}}
		text := p.String()
		if _, err := ParseParked(text); err != nil {
			t.Fatal(err)
		}
		for i := range text {
			for _, c := range "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_=." {
				other := text[:i] + string(c) + text[i+1:]
				if got, err := ParseParked(other); other != text && err == nil {
					t.Errorf("%s for %s is accepted, as %+v", other, text, got)
				}
			}
		}
	}
}
