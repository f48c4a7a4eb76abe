package quorumlock

import (
	"fmt"
	"os"
	"sync"

	"github.com/quorumlock/quorumlock/internal/settings"
)

// DefaultLabel returns the label of a client without [WithLabel]: `<hostname>-<pid>`. Hyphens
// replace characters that are invalid in a label. A long hostname is cut, so that the process ID
// remains.
func DefaultLabel() string { return defaultLabel() }

var defaultLabel = sync.OnceValue(func() string {
	host, err := os.Hostname()
	if err != nil {
		host = ""
	}
	return labelOf(host, os.Getpid())
})

func labelOf(host string, pid int) string {
	if host == "" {
		host = "unknown"
	}
	clean := []byte(host)
	for i, c := range clean {
		if !settings.InLabel(c) {
			clean[i] = '-'
		}
	}
	end := fmt.Sprintf("-%d", pid)
	return string(clean[:min(len(clean), settings.MaxLabel-len(end))]) + end
}
