package transport

import (
	"errors"
	"strings"
	"testing"
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
