package scripts_test

import (
	"sync"

	"github.com/alicebob/miniredis/v2"

	"github.com/quorumlock/quorumlock/internal/wire"
)

// channel hears the unlock channel of a lock, or another one.
type channel struct {
	*server
	name     string
	messages chan miniredis.PubsubMessage
}

// listen hears every release of a lock until the end of the test.
func (s *server) listen(name string) channel { return s.listenTo(wire.UnlockChannel(name)) }

func (s *server) listenTo(name string) channel {
	c := channel{s, name, make(chan miniredis.PubsubMessage, 64)}
	sub := s.data.NewSubscriber()
	sub.Subscribe(c.name)
	var pump sync.WaitGroup
	pump.Go(func() {
		for m := range sub.Messages() {
			c.messages <- m
		}
	})
	s.Cleanup(func() {
		sub.Close()
		pump.Wait()
	})
	return c
}

// checkTold checks that one release was published since the last check.
func (c channel) checkTold() {
	c.Helper()
	c.check("00")
	c.checkSilence()
}

// checkSilence checks that nothing was published since the last check.
func (c channel) checkSilence() {
	c.Helper()
	c.data.Publish(c.name, "end") // it comes after all earlier messages
	c.check("end")
}

func (c channel) check(message string) {
	c.Helper()
	if m := <-c.messages; m.Message != message || m.Channel != c.name {
		c.Fatalf("told %q on %q, want %q", m.Message, m.Channel, message)
	}
}
