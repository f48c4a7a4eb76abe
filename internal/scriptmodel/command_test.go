package scriptmodel_test

import (
	"fmt"
	"strings"

	"github.com/quorumlock/quorumlock/internal/scriptmodel"
	"github.com/quorumlock/quorumlock/scripts"
)

// command is one step of a sequence: a call, or what happens to the server. It says all that it needs, so that it
// stays what it is when the commands before it are taken away.
type command struct {
	at   scriptmodel.Time // what the clock shows
	does string
	call *scripts.Call // nil if something happens to the server
	set  *setting
	do   func(side)
}

func (c command) String() string {
	if c.call == nil {
		return fmt.Sprintf("%d.%06d  %s", c.at/1e6, c.at%1e6, c.does)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d.%06d  %s(%q", c.at/1e6, c.at%1e6, named[c.call.Script], c.call.Keys()[0])
	for _, a := range c.call.Args() {
		fmt.Fprintf(&b, ", %q", a)
	}
	return b.String() + ")"
}

// play plays the command to a side.
func (c command) play(s side) (reply []byte, told []scriptmodel.Message) {
	s.setTime(c.at)
	switch {
	case c.call != nil:
		return s.run(*c.call)
	case c.set != nil:
		s.configure(*c.set)
	default:
		c.do(s)
	}
	return nil, nil
}

var named = map[*scripts.Script]string{
	scripts.Acquire("", "", 0, 0, 0).Script:                     "acquire",
	scripts.Acquire("", "", 0, 0, 0).Guarded(1).Script:          "guarded acquire",
	scripts.Acquire("", "", 0, 0, 0).Shared().Script:            "share",
	scripts.Acquire("", "", 0, 0, 0).Shared().Guarded(1).Script: "guarded share",
	scripts.Downgrade("", "", 0).Script:                         "downgrade",
	scripts.Raise("", "", 0, 0, 0).Script:                       "raise",
	scripts.Renew("", "", 0).Script:                             "renew",
	scripts.Release("", "", 0).Script:                           "release",
	scripts.Leave("", "", false).Script:                         "leave",
	scripts.ForceRelease("").Script:                             "force_release",
	scripts.Release("", "", 1).Open(0, "").Script:               "open",
	scripts.Inspect("", 0).Script:                               "inspect",

	scripts.Acquire("", "", 0, 0, 0).OfSemaphore(1, 0).Script:            "slot_acquire",
	scripts.Acquire("", "", 0, 0, 0).OfSemaphore(1, 0).Guarded(1).Script: "guarded slot_acquire",
	scripts.Release("", "", 0).OfSemaphore(1, 0).Script:                  "slot_release",
	scripts.Leave("", "", false).OfSemaphore(1, 0).Script:                "slot_leave",
	scripts.Renew("", "", 0).OfSemaphore(1, 0).Script:                    "slot_renew",
	scripts.Raise("", "", 0, 0, 0).OfSemaphore(1, 0).Script:              "slot_raise",
	scripts.Inspect("", 0).OfSemaphore(1, 0).Script:                      "slot_inspect",
	scripts.ForceRelease("").OfSemaphore(1, 0).Script:                    "slot_force_release",
}
