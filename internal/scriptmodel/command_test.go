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
	scripts.Acquire("", "", 0, 0, 0).Script:            "acquire",
	scripts.Acquire("", "", 0, 0, 0).Guarded(1).Script: "guarded acquire",
	scripts.Raise("", "", 0, 0, 0).Script:              "raise",
	scripts.Renew("", "", 0).Script:                    "renew",
	scripts.Release("", "", 0).Script:                  "release",
	scripts.Leave("", "", false).Script:                "leave",
	scripts.ForceRelease("").Script:                    "force_release",
	scripts.Inspect("", 0).Script:                      "inspect",
}
