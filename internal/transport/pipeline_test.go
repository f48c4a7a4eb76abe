package transport

import (
	"errors"
	"strings"
	"testing"
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

// A timer that is late shows that the process is: an answer may have arrived, and wait to be read.
func TestTheLagOfTheProcessIsNotTheSilenceOfTheNode(t *testing.T) {
	for what, late := range map[string]time.Duration{"in time": 0, "late": time.Minute} {
		failed, now := false, time.Now()
		l := newLane(&Node{connectLimit: time.Second}, 0)
		sent := &request{lane: l, limit: time.Second, answer: func([]wire.Reply) { failed = true }}
		l.underWay = []*pipeline{{requests: []*request{sent}, limit: time.Second, sent: now.Add(-time.Second).Add(-late + late/1000)}}
		l.next = now.Add(-late)
		l.expire()
		if failed != (late == 0) {
			t.Errorf("%s: the call has failed: %v", what, failed)
		}
		if l.timer != nil {
			l.timer.Stop()
		}
	}
}
