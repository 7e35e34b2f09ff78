// Command pause holds a pod's namespaces open until it is told to end, and reaps what is orphaned.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ends := make(chan os.Signal, 1)
	signal.Notify(ends, syscall.SIGINT, syscall.SIGTERM)
	orphans := make(chan os.Signal, 16)
	signal.Notify(orphans, syscall.SIGCHLD)
	for {
		select {
		case <-ends:
			return
		case <-orphans:
			for {
				pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
				if pid <= 0 || err != nil {
					break
				}
			}
		}
	}
}
