"""The URLs of the market."""

from django.contrib.auth.views import LoginView, LogoutView
from django.urls import path

from market.views import actions, board, item, players

urlpatterns = [
    path("", board.market, name="market"),
    path("live/", board.live, name="market_live"),
    path("sales/<slug:which>/", board.shelf, name="shelf"),
    path("runs/", board.run_log, name="run_log"),
    path("sell/", actions.sell, name="sell"),
    path("sale/<int:pk>/", item.sale, name="sale"),
    path("sale/<int:pk>/live/", item.live, name="sale_live"),
    path("sale/<int:pk>/bid/", actions.bid, name="bid"),
    path("sale/<int:pk>/watch/", actions.watch, name="watch"),
    path("sale/<int:pk>/move/", actions.move, name="move"),
    path("sale/<int:pk>/call-off/", actions.call_off, name="call_off"),
    path("sale/<int:pk>/schedule-again/", actions.schedule_again, name="schedule_again"),
    path("letters/", players.letters, name="letters"),
    path("letters/count/", players.count, name="count"),
    path("sign-in/", LoginView.as_view(redirect_authenticated_user=True), name="login"),
    path("sign-in/play-as/", players.play_as, name="play_as"),
    path("sign-out/", LogoutView.as_view(), name="logout"),
]
