package main

import (
	"fmt"
	"math/rand/v2"
	"net/http"
)

// inventedModel answers as a language model's API does, and takes a random number of tokens, from least to most.
func inventedModel(least, most int64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"choices":[{"message":{"role":"assistant","content":"Certainly."}}],"usage":{"total_tokens":%d}}`+"\n",
			least+rand.Int64N(most-least+1))
	})
}
