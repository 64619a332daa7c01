package app

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestField_OneLogLineASecond: what callers do wrong is logged at most once a second.
func TestField_OneLogLineASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		s := (&App{log: slog.New(slog.NewTextHandler(&text, nil))}).sparing()
		for range 1000 {
			s.log(slog.LevelWarn, "odd", "domain", "x")
		}
		require.Equal(t, 1, strings.Count(text.String(), "\n"))
		time.Sleep(time.Second)
		s.log(slog.LevelWarn, "odd", "domain", "x")
		require.Equal(t, 2, strings.Count(text.String(), "\n"))
		require.Contains(t, text.String(), "unlogged=999")
	})
}
