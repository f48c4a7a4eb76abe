package quorumlock

import (
	"fmt"
	"os"
	"strings"
	"sync"
)

// maxLabel is the longest label, in bytes.
const maxLabel = 64

// DefaultLabel returns the label of a client that is given none: `<hostname>-<pid>`. Characters that a label must not
// have become hyphens. A long hostname is cut, so that the process ID remains.
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
		if !inLabel(c) {
			clean[i] = '-'
		}
	}
	end := fmt.Sprintf("-%d", pid)
	return string(clean[:min(len(clean), maxLabel-len(end))]) + end
}

func isLabel(s string) bool {
	for _, c := range []byte(s) {
		if !inLabel(c) {
			return false
		}
	}
	return s != "" && len(s) <= maxLabel
}

func inLabel(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("._-", c) >= 0
}
