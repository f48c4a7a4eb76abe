package settings

import (
	"fmt"
	"os"
	"sync"
)

// DefaultLabel returns the label of a client without WithLabel: `<hostname>-<pid>`. Hyphens replace
// characters that are invalid in a label. A long hostname is cut, so that the process ID remains.
var DefaultLabel = sync.OnceValue(func() string {
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
		if !InLabel(c) {
			clean[i] = '-'
		}
	}
	end := fmt.Sprintf("-%d", pid)
	return string(clean[:min(len(clean), MaxLabel-len(end))]) + end
}
