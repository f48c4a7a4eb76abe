package locktest_test

import "testing"

func TestTheExamplesOfKinds(t *testing.T) {
	for name, test := range map[string]func(*testing.T){"RWMutex": testRefresh, "Semaphore": testCrawl, "Latch": testMerge, "Election": testLead, "Attach": testResume} {
		t.Run(name, test)
	}
}
