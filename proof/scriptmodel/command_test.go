package scriptmodel_test

import (
	"fmt"
	"strings"

	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/proof/scriptmodel"
)

// command is one step of a sequence: a call, or an event of the server. It is self-contained, so
// that it does not change when earlier commands are removed.
type command struct {
	at   scriptmodel.Time // the time by the clock
	does string
	call *wire.Call // nil for an event of the server
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

var named = map[*wire.Script]string{
	wire.Acquire("", "", 0, 0, 0).Script:                     "acquire",
	wire.Acquire("", "", 0, 0, 0).Guarded(1).Script:          "guarded acquire",
	wire.Acquire("", "", 0, 0, 0).Shared().Script:            "share",
	wire.Acquire("", "", 0, 0, 0).Shared().Guarded(1).Script: "guarded share",
	wire.Downgrade("", "", 0).Script:                         "downgrade",
	wire.Raise("", "", 0, 0, 0).Script:                       "raise",
	wire.Renew("", "", 0).Script:                             "renew",
	wire.Park("", "", "", 0, 0).Script:                       "transfer",
	wire.Attach("", "", "", 0, 0, 0).Guarded(1).Script:       "guarded transfer",
	wire.Release("", "", 0).Script:                           "release",
	wire.Leave("", "", false).Script:                         "leave",
	wire.ForceRelease("").Script:                             "force_release",
	wire.Release("", "", 1).Open(0, "").Script:               "open",
	wire.Inspect("", 0).Script:                               "inspect",

	wire.Acquire("", "", 0, 0, 0).OfSemaphore(1, 0).Script:            "slot_acquire",
	wire.Acquire("", "", 0, 0, 0).OfSemaphore(1, 0).Guarded(1).Script: "guarded slot_acquire",
	wire.Release("", "", 0).OfSemaphore(1, 0).Script:                  "slot_release",
	wire.Leave("", "", false).OfSemaphore(1, 0).Script:                "slot_leave",
	wire.Renew("", "", 0).OfSemaphore(1, 0).Script:                    "slot_renew",
	wire.Raise("", "", 0, 0, 0).OfSemaphore(1, 0).Script:              "slot_raise",
	wire.Inspect("", 0).OfSemaphore(1, 0).Script:                      "slot_inspect",
	wire.ForceRelease("").OfSemaphore(1, 0).Script:                    "slot_force_release",

	wire.LatchTail("", 1, 0).Script: "latch",
}
