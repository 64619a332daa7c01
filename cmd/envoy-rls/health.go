package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// newHealth makes the command for the health check of a container that holds nothing but this program.
func newHealth() *cobra.Command {
	var addr string
	var timeout time.Duration
	var t trust
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Ask a running service whether it is ready",
		Long: `Asks a running service at its admin address whether it is ready: exit code 0 if it is, 3 if it is not or does not answer in time. Made for
health checks in containers, where there is no curl.`,
		Example: `  envoy-rls health
  envoy-rls health --addr envoy-rls-1:8080 --timeout 1s`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			client, err := t.client()
			if err != nil {
				return misused("%w", err)
			}
			if err := askReady(ctx, client, addr); err != nil {
				return failed(err)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), "ready")
			return err
		},
	}
	cmd.Flags().StringVar(&addr, "addr", "127.0.0.1:8080", "admin address of the service: host:port or a URL")
	t.flags(cmd)
	cmd.Flags().DurationVar(&timeout, "timeout", 2*time.Second, "how long the service may take to answer")
	return cmd
}

// askReady returns nil if the service at addr says that it is ready, else why not.
func askReady(ctx context.Context, client *http.Client, addr string) error {
	if !strings.Contains(addr, "://") {
		addr = "http://" + addr
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(addr, "/")+"/readyz", nil)
	if err != nil {
		return err
	}
	req.Close = true
	answer, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	reason, err := io.ReadAll(io.LimitReader(answer.Body, 1<<10))
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("not ready: %s: %s", answer.Status, strings.TrimSpace(string(reason)))
	}
	return nil
}
