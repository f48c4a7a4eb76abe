package transport

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/internal/wire"
)

// A pipeline that is being encoded has sent nothing, so no reply is for it. Its calls are still in
// use.
func TestAReplyBeforeThePipelineIsEncodedBelongsToNoCall(t *testing.T) {
	f := &pipeline{calls: []*command{{}}, alone: 1}
	l := &lane{node: &Node{}, underWay: []*pipeline{f}}
	err := l.readReplies(&connection{replies: reader{from: strings.NewReader("-ERR idle timeout\r\n")}})
	if !errors.Is(err, errUnasked) || f.taken != 0 {
		t.Errorf("error %v, and %d replies were taken", err, f.taken)
	}
}

// bareNode returns a node that dials nothing.
func bareNode(connectLimit time.Duration) *Node {
	n := &Node{connectLimit: connectLimit}
	n.target.Store(&target{name: "bare", shaking: new(atomic.Bool)})
	return n
}

// A timer that is late shows that the process is: an answer may have arrived, and wait to be read.
func TestTheLagOfTheProcessIsNotTheSilenceOfTheNode(t *testing.T) {
	for what, late := range map[string]time.Duration{"in time": 0, "late": time.Minute} {
		failed, now := false, time.Now()
		l := newLane(bareNode(time.Second), 0)
		sent := &request{lane: l, limit: time.Second, answer: func([]wire.Reply) { failed = true }}
		l.underWay = []*pipeline{{requests: []*request{sent}, limit: time.Second, sent: now.Add(-time.Second).Add(-late + late/1000)}}
		l.watch.next = now.Add(-late)
		l.expire()
		if failed != (late == 0) {
			t.Errorf("%s: the call has failed: %v", what, failed)
		}
		if l.watch.timer != nil {
			l.watch.timer.Stop()
		}
	}
}

// A delay that the timer has yet to measure does not count either. So the lane's own time never
// goes back.
func TestTheOwnTimeOfALaneNeverGoesBack(t *testing.T) {
	l, now := newLane(bareNode(time.Second), 0), time.Now()
	l.watch.next = now.Add(-time.Minute) // a minute late
	before := l.watch.own(time.Now())
	l.expire()
	if after := l.watch.own(time.Now()); after.Before(before) || after.After(before.Add(30*time.Second)) {
		t.Errorf("%v later by the lane's time, after a minute's delay", after.Sub(before))
	}
}

// The goroutine of a timer runs next, but a reader that is ready goes first. Now and then Go takes
// the timer's goroutine first nevertheless, as that is fair to the global queue.
func TestAReaderThatIsReadyGoesBeforeTheTimer(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const tries = 200
	failed := 0
	for range tries {
		l, now := newLane(bareNode(time.Second), 0), time.Now()
		sent := &request{lane: l, limit: time.Second, answer: func([]wire.Reply) { failed++ }}
		l.underWay = []*pipeline{{requests: []*request{sent}, limit: time.Second, sent: now.Add(-2 * time.Second)}}
		l.watch.next = now.Add(time.Hour) // not late
		var both sync.WaitGroup
		both.Go(func() { // the reader
			l.mu.Lock()
			l.meter.heard = time.Now()
			l.mu.Unlock()
		})
		both.Go(l.expire) // runs next, and puts the reader behind it
		both.Wait()
		if l.watch.timer != nil {
			l.watch.timer.Stop()
		}
	}
	if failed > tries/2 {
		t.Errorf("%d of %d calls failed though their answers waited to be read", failed, tries)
	}
}

// The time of callers' answers is not that of the server.
func TestTheTimeOfAnswersIsNotTheServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLane(bareNode(0), 0)
		now := time.Now()
		f := &pipeline{sent: now}
		for i := range minBundle {
			r := &request{lane: l, left: 1, replies: make([]wire.Reply, 1), answer: func([]wire.Reply) { time.Sleep(time.Second) }}
			f.calls = append(f.calls, &command{request: r})
			time.Sleep(time.Duration(i) * time.Millisecond)
			l.meter.heard = time.Now()
			l.give(f.calls[i], wire.Reply{})
		}
		if l.meter.served(f, 0); l.meter.perCall > time.Millisecond {
			t.Errorf("a call counts as %v of the server's time", l.meter.perCall)
		}
	})
}

// A lane with too many first attempts refuses attempts alone. Any number of other calls fills no
// lane. AUTH has no calls.
func TestAFullLaneRefusesAttemptsAlone(t *testing.T) {
	attempt := wire.AcquireInTurn("x", "c~1:7.1", time.Second, 1, wire.Entry{Waiter: "c~1:7", Ticket: 1, TTL: time.Second}).At(0)
	release := wire.Release("x", "c~1:7.1", 1).At(0)
	for what, tt := range map[string]struct {
		queued  wire.Call
		calls   []wire.Call
		refused bool
	}{
		"AUTH":                      {attempt, nil, false},
		"an attempt":                {attempt, []wire.Call{attempt}, true},
		"a release":                 {attempt, []wire.Call{release}, false},
		"an attempt after releases": {release, []wire.Call{attempt}, false},
	} {
		l := newLane(bareNode(0), 0)
		l.works = true // there is no worker
		l.do(time.Hour, slices.Repeat([]wire.Call{tt.queued}, maxCalls), func([]wire.Reply) {})
		if err := l.unsent.refusal(tt.calls, 100); (err != nil) != tt.refused {
			t.Errorf("%s: %v", what, err)
		}
		l.close()
		if l.unsent.calls != 0 || l.unsent.bytes != 0 {
			t.Errorf("%s: %d calls of %d bytes count in an empty queue", what, l.unsent.calls, l.unsent.bytes)
		}
	}
}

// An attempt that goes behind later requests keeps the limit from its own queueing.
func TestAQueueKnowsThatALimitEndsEarlier(t *testing.T) {
	var q queue
	now := time.Now()
	q.push(&request{limit: time.Second, queued: now})
	if q.push(&request{limit: time.Second, queued: now.Add(time.Millisecond)}); q.unordered {
		t.Error("limits in their order count as unordered")
	}
	if q.push(&request{limit: time.Second, queued: now.Add(-time.Second)}); !q.unordered {
		t.Error("an earlier limit behind later ones counts as ordered")
	}
}
