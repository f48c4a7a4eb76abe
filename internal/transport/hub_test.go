package transport

import "testing"

// A listener may stop after it has left one hub, and before it has joined the next.
func TestAListenerThatStopsDuringAMoveJoinsNoHub(t *testing.T) {
	var next hub
	next.init(nil)
	l := &listener{channel: "c"}
	l.hub.Store(&next)
	l.stop()
	next.listen(l)
	if len(next.channels) > 0 || next.running {
		t.Errorf("the hub has %d channels, running: %v, want none", len(next.channels), next.running)
	}
}
