package transport

import (
	"slices"
	"testing"
)

func TestOpenSlotsAreThoseThatMove(t *testing.T) {
	const nodes = "07c37dfe 127.0.0.1:7001@17001,host-a myself,master - 0 0 2 connected 0-5460 [93->-292f8b36] [77-<-e7d1eecc]\n" +
		"292f8b36 127.0.0.1:7002@17002 master - 0 1426238316232 2 connected 5461-16383\n"
	if got, want := openSlots(nodes), []string{"93", "77"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
